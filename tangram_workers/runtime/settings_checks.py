"""Checks of settings that need more than a type, and the words in which they are refused."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from tangram_workers.domain.errors import SettingsError, shown_value

PREFIX = "TANGRAM_"
#: Variables that the fleet gives to the programs of actions: cores granted, and whose they are. A
#: program may itself be a client of a fleet, so they are no misspelt settings.
CPUS_VARIABLE = "TANGRAM_CPUS"
MARK_VARIABLE = "TANGRAM_SANDBOX_MARK"


def variable_name(field: str) -> str:
    """Return the environment variable of a settings field."""
    return PREFIX + field.upper()


def check_broker_url(url: str) -> str:
    """Return the URL of a Redis.

    Raises:
        ValueError: If it names none; the message holds no part of the URL.
    """
    url = url.strip()
    if not url.startswith(("redis://", "rediss://")):
        raise ValueError("give a URL that starts with redis:// or rediss://")
    # The standard library's own words may hold parts of the password; ours never do.
    try:
        parts = urlsplit(url)
        is_address, path = bool(parts.hostname) and parts.port != 0, parts.path
    except ValueError:
        is_address, path = False, ""
    if not is_address:
        raise ValueError(
            "give redis://[:password@]host:port/db with a port from 1 to 65535, and write "
            "characters such as / # ? @ : in the password as %2F %23 %3F %40 %3A"
        )
    database = path.removeprefix("/")
    if database and not (database.isascii() and database.isdigit()):
        raise ValueError("give the database, behind the host, as a number such as /0")
    return url


def absolute_path(path: Path) -> Path:
    """Return the path with ~ expanded, as seen from the root.

    The fleet's processes start in different folders, and no shell has expanded a container's ~.

    Raises:
        ValueError: If that cannot be done.
    """
    if "\0" in str(path):
        raise ValueError("it holds a NUL character; remove it")
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise ValueError("there is no such home folder; write the path without ~") from None


def refuse_unknown_variables(environment: Mapping[str, str], fields: Collection[str]) -> None:
    """Refuse a TANGRAM_ variable that sets nothing: it is a setting that somebody misspelt.

    Raises:
        SettingsError: With the closest setting's name.
    """
    known = {variable_name(field) for field in fields}
    given = {CPUS_VARIABLE, MARK_VARIABLE}
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name not in known | given:
            raise SettingsError(
                f"{name} is not a setting of this fleet. {_suggestion(name.upper(), known)} "
                "All settings: docs/reference/settings.md."
            )


def describe(
    error: ValidationError,
    environment: Mapping[str, str],
    overrides: Mapping[str, Any],
    fields: Collection[str],
) -> str:
    """Return what is wrong, with the variable, its value and the mend; no password is shown."""
    lines = []
    for problem in error.errors():
        field = str(problem["loc"][0]) if problem["loc"] else "settings"
        name = variable_name(field)
        raw = overrides[field] if field in overrides else environment.get(name, "")
        shown = "(hidden)" if field == "broker_url" else shown_value(raw)
        mend = str(problem["msg"]).removeprefix("Value error, ").rstrip(".")
        if field not in fields:
            known = {variable_name(each) for each in fields}
            mend = f"there is no such setting. {_suggestion(name, known).rstrip('.')}"
        lines.append(f"{name}={shown} is not valid: {mend}.")
    return " ".join(lines).replace("?.", "?")


def _suggestion(name: str, known: Collection[str]) -> str:
    # The common prefix would make everything look alike.
    tails = sorted(each.removeprefix(PREFIX) for each in known)
    close = difflib.get_close_matches(name.removeprefix(PREFIX), tails, n=1, cutoff=0.5)
    return f"Did you mean {PREFIX}{close[0]}?" if close else "Unset it."
