"""Writes docs/reference from the code: `python -m tangram_workers.cli.reference docs/reference`.

Settings, errors and commands are described once, beside what they describe. Nothing here depends
on the machine, so a test can hold the committed pages to what is generated.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import annotated_types
import click
from pydantic.fields import FieldInfo

from tangram_workers.domain.errors import TangramError
from tangram_workers.domain.resources import GIB, MIB
from tangram_workers.runtime.settings import Settings, variable_name

COMMAND_LINE = "python -m tangram_workers.cli.reference docs/reference"
#: Modules that define errors; a test looks for others.
ERROR_MODULES = (
    "tangram_workers.domain.errors",
    "tangram_workers.wire.codec",
    "tangram_workers.local.fleet",
    "tangram_workers.bench.broker.processes",
)

_NOTE = f"<!-- Generated from the code by `{COMMAND_LINE}`; change it there. -->\n"
_SETTINGS_INTRODUCTION = (
    "Every process of the fleet reads these environment variables when it starts. An empty "
    "variable is one that is not set. A misspelt name or a value of the wrong kind is refused at "
    "once, with the name, the value and what to do."
)
_ERRORS_INTRODUCTION = (
    "Everything that this package raises on purpose is a `TangramError`. Each message says what "
    "failed, the value, and what to do next."
)
_GROUP_LINE = re.compile(r"^    # --- (?P<title>.+?) -+$")
_FIELD_LINE = re.compile(r"^    (?P<name>[a-z_]+): ")


def generate() -> dict[str, str]:
    """Return every page of the reference: file name -> Markdown."""
    pages = {"settings.md": settings_page(), "errors.md": errors_page()}
    group = find_command_group()
    if group is not None:
        pages["commands.md"] = commands_page(group)
    return pages


def settings_page() -> str:
    """Return the page of settings, grouped and ordered as in the code."""
    lines = [
        _NOTE,
        "# Settings",
        "",
        _SETTINGS_INTRODUCTION,
    ]
    for title, names in _settings_groups():
        lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
        lines += ["| variable | unit | default | allowed | meaning |", "|---|---|---|---|---|"]
        for name in names:
            field = Settings.model_fields[name]
            row = (
                f"`{variable_name(name)}`",
                _extra(field)["unit"],
                _default(field),
                _allowed(field),
                _cell(field.description or ""),
            )
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _settings_groups() -> Iterator[tuple[str, list[str]]]:
    title, names = "general", list[str]()
    for line in inspect.getsource(Settings).splitlines():
        if match := _GROUP_LINE.match(line):
            if names:
                yield title, names
            title, names = match["title"], []
        elif (match := _FIELD_LINE.match(line)) and match["name"] in Settings.model_fields:
            names.append(match["name"])
    if names:
        yield title, names


def _extra(field: FieldInfo) -> dict[str, str]:
    return typing.cast("dict[str, str]", field.json_schema_extra)


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return "computed"  # its description says how; this machine's value is nobody's business
    if field.default is None:
        return "unset"
    if field.default == ():
        return "none"
    return _amount(field.default, _extra(field)["unit"])


def _allowed(field: FieldInfo) -> str:
    choices = typing.get_args(field.annotation)
    if typing.get_origin(field.annotation) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in choices)
    unit = _extra(field)["unit"]
    parts = []
    for limit in field.metadata:
        if isinstance(limit, annotated_types.Gt):
            parts.append(f"above {_amount(limit.gt, unit)}")
        elif isinstance(limit, annotated_types.Ge):
            parts.append(f"from {_amount(limit.ge, unit)}")
        elif isinstance(limit, annotated_types.Le):
            parts.append(f"to {_amount(limit.le, unit)}")
        elif isinstance(limit, annotated_types.MaxLen):
            parts.append(f"at most {limit.max_length} characters")
        elif pattern := getattr(limit, "pattern", None):
            parts.append(f"`{_cell(str(pattern))}`")
    return " ".join(parts)


def _amount(value: Any, unit: str) -> str:
    if unit == "bytes":
        for name, size in (("GiB", GIB), ("MiB", MIB)):
            if value >= size and value % size == 0:
                return f"`{value}` ({value // size} {name})"
    return f"`{value}`"


def _cell(text: str) -> str:
    # A bar would end the table's cell; angle brackets outside code would be read as HTML.
    outside_code = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    outside_code[::2] = [part.replace("<", "&lt;") for part in outside_code[::2]]
    return "".join(outside_code)


def errors_page() -> str:
    """Return the page of errors, parents before their children."""
    for module in ERROR_MODULES:
        importlib.import_module(module)
    lines = [
        _NOTE,
        "# Errors",
        "",
        _ERRORS_INTRODUCTION,
        "",
        "| error | also a | meaning |",
        "|---|---|---|",
    ]
    for depth, error in _error_tree(TangramError, 0):
        parents = ", ".join(f"`{parent.__name__}`" for parent in error.__bases__)
        meaning = _cell(" ".join(inspect.cleandoc(error.__doc__ or "").split()))
        lines.append(f"| {'&nbsp;' * 4 * depth}`{error.__name__}` | {parents} | {meaning} |")
    return "\n".join(lines) + "\n"


def _error_tree(error: type[Exception], depth: int) -> Iterator[tuple[int, type[Exception]]]:
    yield depth, error
    # Others may be loaded by now, a test's own for one: they are not ours. Python keeps them in
    # the order of imports, which differs from one process to the next.
    ours = [child for child in error.__subclasses__() if child.__module__ in ERROR_MODULES]
    for child in sorted(ours, key=lambda each: ERROR_MODULES.index(each.__module__)):
        yield from _error_tree(child, depth + 1)


def find_command_group() -> click.Group | None:
    """Return the command tree, or None where it is not there."""
    module = importlib.import_module("tangram_workers.cli")
    for name in ("cli", "main"):
        found = getattr(module, name, None)
        if isinstance(found, click.Group):
            return found
    return None


def commands_page(group: click.Group) -> str:
    """Return the page of commands, in alphabetical order."""
    lines = [_NOTE, "# Commands", "", _paragraphs(group.help)]
    for path, command in _command_tree(group, "tangram"):
        context = click.Context(command, info_name=path)
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        lines += ["", f"## `{path}`", "", _paragraphs(command.help), "", f"    {usage}"]
        records = [
            record
            for parameter in command.get_params(context)
            if isinstance(parameter, click.Option)
            and (record := parameter.get_help_record(context)) is not None
        ]
        lines += ["", "| option | meaning |", "|---|---|"]
        for names, meaning in records:
            lines.append(f"| `{names.replace('|', chr(92) + '|')}` | {_cell(meaning)} |")
    return "\n".join(lines) + "\n"


def _command_tree(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from _command_tree(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _paragraphs(text: str | None) -> str:
    cleaned = inspect.cleandoc(text or "").replace("\b\n", "")
    return "\n\n".join(" ".join(part.split()) for part in cleaned.split("\n\n"))


def write(folder: Path, pages: Mapping[str, str]) -> None:
    """Write the pages into a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write the reference; return an exit code."""
    if len(arguments) != 1:
        print(f"Usage: {COMMAND_LINE}", file=sys.stderr)
        return 2
    pages = generate()
    write(Path(arguments[0]), pages)
    print(f"Wrote {', '.join(sorted(pages))} to {arguments[0]}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
