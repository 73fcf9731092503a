"""The committed reference is what the code generates, and is complete."""

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tangram_workers.cli import reference
from tangram_workers.runtime.settings import Settings, variable_name

ROOT = Path(__file__).parents[2]
PAGES = ("settings.md", "errors.md", "commands.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_the_generated_one(name):
    committed = ROOT / "docs" / "reference" / name
    text = committed.read_text(encoding="utf-8") if committed.exists() else ""
    is_current = text == reference.generate()[name]
    assert is_current, f"docs/reference/{name} is out of date; run: {reference.COMMAND_LINE}"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_on_its_page(name):
    assert f"| `{variable_name(name)}` |" in reference.settings_page()


def test_settings_stay_below_their_headings():
    page = reference.settings_page()
    assert "## General" not in page
    assert page.index("## The router") < page.index("TANGRAM_ROUTER_POLICY")
    assert page.index("TANGRAM_ROUTER_POLICY") < page.index("## Workers and leases")


def test_nothing_of_this_machine_is_on_the_pages():
    text = "".join(reference.generate().values())
    assert socket.gethostname() not in text.split()
    assert str(Path.home()) + "/" not in text
    assert str(ROOT) not in text


def test_every_error_of_the_package_is_on_its_page():
    page = reference.errors_page()
    missing = [name for name in _error_classes() if f"`{name}`" not in page]
    assert not missing, f"add their modules to ERROR_MODULES in cli/reference.py: {missing}"


def test_every_command_is_on_its_page():
    group = reference.find_command_group()
    assert group is not None
    page = reference.commands_page(group)
    assert [name for name in _command_names(group) if f"## `tangram {name}`" not in page] == []


def test_the_command_writes_the_same_pages_in_a_fresh_process(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "tangram_workers.cli.reference", str(tmp_path)],
        check=True,
        capture_output=True,
        # Neither the terminal nor the fleet of whoever runs it may change a page.
        env={**os.environ, "COLUMNS": "40", "TANGRAM_NODE": "elsewhere"},
        timeout=60,
    )
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert written == reference.generate()


def _command_names(group: click.Group) -> list[str]:
    """Commands, those of a group with its name before theirs."""
    names = []
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            names += [f"{name} {inner}" for inner in _command_names(command)]
        else:
            names.append(name)
    return names


def _error_classes() -> list[str]:
    """Names of the package's public exception classes, by their names' ending."""
    return [
        node.name
        for path in sorted((ROOT / "tangram_workers").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and node.name.endswith("Error")
        and not node.name.startswith("_")
    ]
