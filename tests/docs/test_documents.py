"""The documents hold: links lead somewhere, examples run, and what they print is what is there.

Marks in the documents, as HTML comments right above a block:

    file: NAME                     the Python block is a program that console blocks may run
    output of the block above      the text block is what the Python block printed
    not run: REASON                the console block must not be run here
    demo-output                    what a run of the demo printed once

In console blocks a line that starts with `$ ` is a command, and the lines below it are its output;
`...` stands for anything.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tangram_workers
from tangram_workers.cli.main import cli
from tangram_workers.domain.result import Outcome
from tangram_workers.local.fleet import Fleet
from tangram_workers.runtime.settings import Settings
from tangram_workers.runtime.settings_checks import variable_name

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").rglob("*.md"))]
#: Their commands are run, not only their Python.
WALKED = [README, TUTORIAL]
OUTPUT_MARK = "output of the block above"
#: Seconds that any one command or example may take.
TIMEOUT_S = 60

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$", re.M | re.S)
_COMMENT_ABOVE = re.compile(r"<!--\s*(?P<text>(?:(?!-->).)*?)\s*-->\n\Z", re.S)
_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<title>.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    document: Path
    line: int
    language: str
    text: str
    #: The HTML comment right above it; empty if there is none.
    mark: str

    @property
    def name(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks_of(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    blocks = []
    for fence in _FENCE.finditer(text):
        above = text[: fence.start()]
        comment = _COMMENT_ABOVE.search(above)
        blocks.append(
            Block(
                document=document,
                line=above.count("\n") + 1,
                language=fence["language"],
                text=fence["text"],
                mark=comment["text"] if comment else "",
            )
        )
    return blocks


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]
PYTHON = [block for block in BLOCKS if block.language == "python"]


def relative(value: Any) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else value.name


def assert_prints(printed: str, expected: str, what: str) -> None:
    """Compare as doctest does, where `...` stands for anything."""
    is_alike = doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
    assert is_alike, f"{what} printed:\n{printed}\nand the document says:\n{expected}"


# --- links ------------------------------------------------------------------------------------


def prose_of(document: Path) -> str:
    return re.sub(r"`[^`\n]+`", "", _FENCE.sub("", document.read_text(encoding="utf-8")))


def anchors_of(document: Path) -> set[str]:
    """Return the anchors that GitHub makes of a document's headings."""
    anchors: set[str] = set()
    for heading in _HEADING.finditer(_FENCE.sub("", document.read_text(encoding="utf-8"))):
        words = re.sub(r"[^\w\- ]", "", heading["title"].lower()).replace(" ", "-")
        anchor, count = words, 0
        while anchor in anchors:
            count += 1
            anchor = f"{words}-{count}"
        anchors.add(anchor)
    return anchors


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for link in _LINK.finditer(prose_of(document)):
        target = link["target"]
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        is_inside = there.is_relative_to(ROOT)
        if not is_inside or not there.exists() or (anchor and anchor not in anchors_of(there)):
            broken.append(target)
    assert broken == []


def test_every_document_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link["target"]).resolve() for link in _LINK.finditer(prose_of(index))}
    assert [relative(each) for each in DOCUMENTS if each not in linked and each != index] == []


# --- Python -----------------------------------------------------------------------------------


def output_of(block: Block) -> str | None:
    """Return what a document says that a Python block prints; None if it does not say."""
    following = next(
        (each for each in BLOCKS if each.document == block.document and each.line > block.line),
        None,
    )
    if following is None or following.mark != OUTPUT_MARK:
        return None
    return following.text


@pytest.mark.parametrize("block", PYTHON, ids=relative)
def test_every_python_block_runs_on_a_real_fleet(
    block: Block, fleet: Fleet, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        env={**os.environ, "TANGRAM_BROKER_URL": fleet.url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    expected = output_of(block)
    if expected is not None:
        assert_prints(done.stdout, expected, block.name)


def test_output_and_what_printed_it_are_a_marked_pair() -> None:
    for before, block in zip([None, *BLOCKS], BLOCKS, strict=False):
        is_below_python = (
            before is not None and before.document == block.document and before.language == "python"
        )
        if block.mark == OUTPUT_MARK or (is_below_python and block.language == "text"):
            assert is_below_python, block.name
            assert (block.language, block.mark) == ("text", OUTPUT_MARK), block.name


def test_the_readmes_trainer_takes_ten_lines() -> None:
    [block] = [each for each in PYTHON if each.document == README and each.mark == "file: step.py"]
    lines = [line for line in block.text.splitlines() if line]
    assert len(lines) <= 10  # the formatter's empty lines do not count
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("from tangram_workers import ") for line in lines)
    assert "async with Client()" in block.text
    assert output_of(block) is not None


# --- commands ---------------------------------------------------------------------------------


def commands_of(block: Block) -> list[tuple[str, str]]:
    """Return a console block's commands, each with the output that the document shows."""
    commands: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), ""))
        else:
            assert commands, f"{block.name} begins with output"
            command, output = commands[-1]
            commands[-1] = (command, f"{output}{line}\n")
    assert commands, f"{block.name} has no command"
    return commands


@pytest.mark.parametrize("document", WALKED, ids=relative)
def test_the_commands_of_a_document_run_in_order(document: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TANGRAM_DATA_DIR": str(tmp_path / "fleet"),
        "COLUMNS": "200",
    }

    def bash(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    ran, saved = "", []
    try:
        for block in blocks_of(document):
            if block.mark.startswith("file: "):
                saved.append(block.mark.removeprefix("file: "))
                (folder / saved[-1]).write_text(block.text, encoding="utf-8")
            if block.language != "console" or is_not_run(block):
                continue
            for command, expected in commands_of(block):
                done = bash(command)
                ran += command + "\n"
                assert done.returncode == 0, f"{block.name}: {command}\n{done.stdout}"
                assert_prints(done.stdout, expected, f"{block.name}: {command}")
    finally:
        if "tangram up" in ran and "tangram down" not in ran:
            bash("tangram down")
    assert "tangram run" in ran
    if document == TUTORIAL:
        assert [name for name in saved if f"python {name}" not in ran] == []


def is_not_run(block: Block) -> bool:
    return block.mark.startswith("not run")


def test_what_is_not_run_says_why() -> None:
    marked = [block for block in BLOCKS if is_not_run(block)]
    assert marked
    for block in marked:
        assert block.language == "console", block.name
        reason = block.mark.removeprefix("not run").removeprefix(":").strip()
        assert len(reason.split()) >= 3, f"{block.name} is not run, and does not say why"


def test_every_mark_is_one_that_is_known() -> None:
    known = (OUTPUT_MARK, "not run: ", "file: ", "demo-output")
    assert [b.name for b in BLOCKS if b.mark and not b.mark.startswith(known)] == []


def test_commands_of_other_documents_are_no_console_blocks() -> None:
    """Only README and tutorial are walked through, so only they may look as if they were."""
    walked = [block.name for block in BLOCKS if block.language == "console"]
    assert [n for n in walked if not n.startswith(("README.md:", "docs/tutorial.md:"))] == []


# --- names ------------------------------------------------------------------------------------


def reference(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("field", sorted(Settings.model_fields))
def test_every_setting_is_documented(field: str) -> None:
    assert f"`{variable_name(field)}`" in reference("settings.md")


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_is_documented(name: str) -> None:
    # Of a group it is the commands in it that are documented, each.
    assert re.search(rf"^## `tangram {name}[` ]", reference("commands.md"), re.M)


def test_every_error_that_is_exported_is_documented() -> None:
    errors = [
        name
        for name in tangram_workers.__all__
        if isinstance(kind := getattr(tangram_workers, name), type)
        and issubclass(kind, BaseException)
    ]
    assert len(errors) > 10
    assert [name for name in errors if f"`{name}`" not in reference("errors.md")] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_no_setting_or_command_is_named_that_is_not_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    variables = {variable_name(field) for field in Settings.model_fields}
    # TANGRAM_CPUS is what a command sees of its grant.
    named = set(re.findall(r"\bTANGRAM_[A-Z_]+[A-Z]\b", text)) - {"TANGRAM_CPUS"}
    assert named - variables == set()
    commands = set(re.findall(r"(?:`|\$ |bin/)tangram ([a-z]+)", text))
    assert commands - set(cli.commands) == set()


# --- states -----------------------------------------------------------------------------------


def test_the_state_diagram_ends_in_exactly_the_outcomes() -> None:
    document = ROOT / "docs" / "explanation" / "states-and-outcomes.md"
    [diagram] = [block.text for block in blocks_of(document) if block.language == "mermaid"]
    edges = re.findall(r"^ *(\S+) --> ([^\s:]+)", textwrap.dedent(diagram), re.M)
    outcomes = {str(outcome) for outcome in Outcome}
    assert {source for source, target in edges if target == "[*]"} == outcomes
    states = {state for edge in edges for state in edge} - {"[*]"}
    assert states - outcomes == {"queued", "running"}
    assert {target for source, target in edges if source == "[*]"} == {"queued"}


def test_the_table_of_outcomes_has_each_of_them() -> None:
    document = ROOT / "docs" / "explanation" / "states-and-outcomes.md"
    rows = re.findall(r"^\| `(\w+)` \|", document.read_text(encoding="utf-8"), re.M)
    assert rows == [str(outcome) for outcome in Outcome]
