"""Options that several commands share."""

from __future__ import annotations

import json
from typing import Any

import click

json_option = click.option(
    "--json", "as_json", is_flag=True, help="End with one line of JSON on standard output."
)
sandbox_option = click.option(
    "--sandbox",
    type=click.Choice(["bubblewrap", "process"]),
    default=None,
    help="Sandbox driver; `process` does NOT isolate and is for trusted code only. "
    "Default: TANGRAM_SANDBOX_DRIVER.",
)


def overrides(**given: Any) -> dict[str, Any]:
    """Return the options that were given, as overrides of settings."""
    return {name: value for name, value in given.items() if value is not None}


def echo_json(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(json.dumps(value))
