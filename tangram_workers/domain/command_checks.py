"""Checks of a command's parts: what the system would refuse later is refused at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tangram_workers.domain.checks import require_text
from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.domain.limits import (
    MAX_ARGUMENT_LENGTH,
    MAX_ARGUMENTS_BYTES,
    MAX_FILE_NAME_BYTES,
    MAX_FILES,
    MAX_PATH_LENGTH,
    MAX_PAYLOAD_BYTES,
)


def checked_argv(argv: object) -> tuple[str, ...]:
    """Return the program and its arguments, or refuse them."""
    if not isinstance(argv, tuple | list):
        raise InvalidActionError(
            "command.argv", argv, 'give a list of texts, such as ["python3", "main.py"].'
        )
    if not argv:
        raise InvalidActionError("command.argv", argv, "name the program to run.")
    return tuple(
        _require_argument(f"command.argv[{index}]", argument, allow_empty=index > 0)
        for index, argument in enumerate(argv)
    )


def checked_files(files: object) -> dict[str, str]:
    """Return a copy of the files by path; refuse what cannot be written side by side."""
    if not isinstance(files, Mapping):
        raise InvalidActionError("command.files", files, "give a mapping path -> text.")
    if len(files) > MAX_FILES:
        raise InvalidActionError("command.files", len(files), f"give at most {MAX_FILES} files.")
    checked: dict[str, str] = {}
    places: dict[tuple[str, ...], str] = {}
    for path, content in files.items():
        plain_path = require_relative_path("command.files", path)
        place = tuple(part for part in plain_path.split("/") if part not in ("", "."))
        if not place or plain_path.endswith(("/", "/.")):
            raise InvalidActionError("command.files", path, "it names a folder; name a file.")
        if place in places:
            raise InvalidActionError(
                "command.files", path, f"it is the same file as {places[place]!r}; give it once."
            )
        places[place] = plain_path
        checked[plain_path] = require_text(
            f"command.files[{plain_path!r}]",
            content,
            maximum_length=MAX_PAYLOAD_BYTES,
            allow_empty=True,
        )
    for place, path in places.items():
        for depth in range(1, len(place)):
            if place[:depth] in places:
                raise InvalidActionError(
                    "command.files",
                    path,
                    f"{places[place[:depth]]!r} is a file too, so it cannot be a folder; "
                    "rename one.",
                )
    return checked


def checked_env(env: object) -> dict[str, str]:
    """Return a copy of the variables, or refuse them."""
    if not isinstance(env, Mapping):
        raise InvalidActionError("command.env", env, "give a mapping name -> text.")
    checked: dict[str, str] = {}
    for name, value in env.items():
        plain_name = require_text("command.env", name, maximum_length=1000)
        if "=" in plain_name:
            raise InvalidActionError("command.env", name, "a name cannot hold '='.")
        # The system counts the whole of `name=value` as one argument.
        checked[plain_name] = _require_argument(
            f"command.env[{plain_name!r}]",
            value,
            allow_empty=True,
            spent_bytes=len(plain_name.encode()) + 1,
        )
    return checked


def _require_argument(
    field_name: str, value: object, *, allow_empty: bool, spent_bytes: int = 0
) -> str:
    text = require_text(
        field_name, value, maximum_length=MAX_ARGUMENT_LENGTH, allow_empty=allow_empty
    )
    most_bytes = MAX_ARGUMENT_LENGTH - spent_bytes
    if len(text.encode()) > most_bytes:
        raise InvalidActionError(
            field_name, value, f"its UTF-8 form is above {most_bytes} bytes; pass it as a file."
        )
    return text


def require_relative_path(field_name: str, path: object) -> str:
    """Return a path that stays below the workspace, or refuse it."""
    text = require_text(field_name, path, maximum_length=MAX_PATH_LENGTH)
    if text.startswith("/") or ".." in text.split("/"):
        raise InvalidActionError(
            field_name, path, "give a path below the workspace, without a leading '/' or '..'."
        )
    if any(len(part.encode()) > MAX_FILE_NAME_BYTES for part in text.split("/")):
        raise InvalidActionError(
            field_name, path, f"one of its names is above {MAX_FILE_NAME_BYTES} bytes; shorten it."
        )
    return text


def require_total_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse arguments and variables that no program could be started with."""
    given_bytes = sum(len(argument.encode()) + 1 for argument in argv)
    given_bytes += sum(len(f"{name}={value}".encode()) + 1 for name, value in env.items())
    if given_bytes > MAX_ARGUMENTS_BYTES:
        raise InvalidActionError(
            "command.argv",
            f"{given_bytes} bytes",
            f"argv and env together may have {MAX_ARGUMENTS_BYTES} bytes; pass long ones as files.",
        )
