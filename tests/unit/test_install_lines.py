"""A new release of anything must never change what a fresh machine gets.

Every line that installs Python or Node packages takes a lock, or this project itself, and nothing
is resolved or built with tools that no lock names. Debian's packages are left out: their versions
come with the release of Debian, which keeps them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Those that test_lock.py proves to be complete.
LOCKS = {"dev.txt"}
#: Every other option is a fault: some take more from elsewhere (`-rFILE`, `--editable=URL`), some
#: undo these (`--no-binary`).
OPTIONS = {
    *("--no-deps", "--require-hashes", "--only-binary=:all:", "--no-build-isolation", "-r", "-e"),
    *("--quiet", "--no-cache-dir"),
}
#: What people and machines install from. docker/ may not be there yet.
SOURCES = [
    ROOT / "Makefile",
    ROOT / ".ci" / "run",
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in (ROOT / "docker").rglob("*") if path.is_file()),
]

# `pip install`, `$(BIN)/pip3.11 -q install`, `python -m pip --log FILE install`, `uv pip install`.
_PIP = re.compile(
    r"\bpip[\d.]*[)}\"']*(?P<before>(?:\s+-\S+(?:\s+[^-\s]\S*)??)*)"
    r"\s+(?:install|download|wheel)(?P<after>(?:\s[^|;&`]*)?)",
    re.I,
)
# These choose versions themselves; which of them reads a lock is not worth telling apart.
_OTHERS = re.compile(
    r"\b(?:uvx|npx|pipx|easy_install|setup\.py\s+(?:install|develop)|uv\s+(?:sync|run|add|tool)|poetry\s+(?:install|add|update)"
    r"|pipenv\s+\w+|(?:conda|mamba)\s+(?:install|create|env)|npm\s+(?:install|i|add|exec|update)"
    r"|(?:yarn|pnpm)\s+(?:install|add|dlx))\b"
)
_CHECK = re.compile(r"\bpip[\d.]*[)}\"']*\s+check\b", re.I)


def lines_of(text: str) -> list[str]:
    """Return the lines of a script or document, continued ones joined, comments left out."""
    # Comments first: in a shell the backslash at the end of one continues nothing.
    bare = re.sub(r"^\s*#.*\n?", "", text, flags=re.M)
    return re.sub(r"\\\n\s*", " ", bare).splitlines()


def pip_calls_in(line: str) -> list[list[str]]:
    """Return the words of every installing call of pip: options and what is installed."""
    bare = re.sub(r"[\"']", "", line)
    return [f"{found['before']} {found['after']}".split() for found in _PIP.finditer(bare)]


def takes_lock(words: list[str]) -> bool:
    return "-r" in words[:-1]


def complaint_about(line: str) -> str | None:
    """Say how a line lets somebody choose versions; None if it installs nothing or a lock."""
    if (other := _OTHERS.search(line)) is not None:
        return f"{other[0]} chooses versions"
    complaints = (complaint_about_pip(words) for words in pip_calls_in(line))
    return next(filter(None, complaints), None)


def complaint_about_pip(words: list[str]) -> str | None:
    if "--no-deps" not in words:
        return "without --no-deps pip chooses the versions of what is required"
    if unknown := {word for word in words if word.startswith("-")} - OPTIONS:
        return f"{', '.join(sorted(unknown))}: not among the options that are known to be harmless"
    named = {word for word in words if not word.startswith("-")}
    if takes_lock(words):
        lock = words[words.index("-r") + 1]
        if Path(lock).name not in LOCKS:
            return f"{lock} is no lock of requirements/"
        if "--require-hashes" not in words:
            return "without --require-hashes a lock may hold a range"
        if "--only-binary=:all:" not in words:
            return "without --only-binary=:all: pip builds with the newest build tools"
        named -= {lock}
    else:
        if "--no-build-isolation" not in words:
            return "without --no-build-isolation pip builds with the newest build tools"
        named -= {"."}
    return f"{', '.join(sorted(named))}: belongs in a lock" if named else None


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_install_line_lets_a_resolver_choose_a_version(source: Path) -> None:
    complaints = {line: complaint_about(line) for line in lines_of(source.read_text("utf-8"))}
    assert {line: why for line, why in complaints.items() if why} == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_after_a_lock_pip_is_asked_whether_it_fits_together(source: Path) -> None:
    """What pip does not resolve it does not compare either."""
    lines = lines_of(source.read_text("utf-8"))
    with_lock = [i for i, line in enumerate(lines) if any(map(takes_lock, pip_calls_in(line)))]
    is_checked = any(_CHECK.search(line) for line in lines[max(with_lock, default=0) :])
    assert is_checked or not with_lock


@pytest.mark.parametrize("name", ["Makefile", "README.md"])
def test_the_lines_that_are_there_are_seen(name: str) -> None:
    lines = lines_of((ROOT / name).read_text("utf-8"))
    calls = [words for line in lines for words in pip_calls_in(line)]
    assert [takes_lock(words) for words in calls] == [True, False]  # the lock, then the project


LOCK = "--no-deps --only-binary=:all: --require-hashes -r requirements/dev.txt"


@pytest.mark.parametrize(
    "line",
    [
        "pip install .",
        "$ pip install '.[embedded,flower,demo]'",
        "Install it with `pip install tangram-workers`.",
        "\tpython3 -m pip install --upgrade pip",
        "\t$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt",
        '\t"${PIP}" install celery',
        "\t$(PIP) -q install celery",
        "pip3.11 --no-cache-dir install --no-deps --no-build-isolation celery",
        "pip --log setup.log install --no-deps celery",
        "pip install --no-deps --no-build-isolation 'celery==5.7.0'",
        "pip install --no-deps .",
        "pip install --no-deps --no-build-isolation -rwishes.txt",
        "pip install --no-deps --no-build-isolation --editable=git+https://example.org/celery",
        f"pip install {LOCK} --no-binary=:all:",
        "python setup.py install",
        "pip install --no-deps --only-binary=:all: -r requirements/dev.txt",
        "pip install --no-deps --require-hashes -r requirements/dev.txt",
        "pip install --no-deps --only-binary=:all: --require-hashes -r wishes.txt",
        f"pip install {LOCK} celery",
        f"RUN pip install {LOCK} && pip install flower",
        "RUN uv pip install --system celery",
        "pip download celery",
        "uv sync",
        "npx playwright",
        "npm install left-pad",
    ],
)
def test_a_line_that_lets_a_resolver_choose_is_found(line: str) -> None:
    assert complaint_about(line) is not None


def test_a_line_that_is_continued_is_read_as_one() -> None:
    [line] = lines_of("RUN pip install \\\n    --no-deps --no-build-isolation \\\n    celery\n")
    assert complaint_about(line) == "celery: belongs in a lock"
    [line] = lines_of(f"pip install \\\n  {LOCK}\n# pip install celery\n")
    assert complaint_about(line) is None
    [line] = lines_of("# a comment \\\npip install celery\n")
    assert complaint_about(line) is not None


@pytest.mark.parametrize(
    "line",
    [
        f"RUN pip --no-cache-dir install {LOCK} && pip check",
        "\t$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .",
        "apt-get install -y -qq redis-server",
        "With Python 3.11 to 3.13, pip, venv and make installed",
        "\tuv pip compile --generate-hashes pyproject.toml -o requirements/dev.txt",
        "npm ci",
    ],
)
def test_a_line_that_installs_a_lock_or_nothing_passes(line: str) -> None:
    assert complaint_about(line) is None
