"""`tangram doctor`: the command around the checks."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from tangram_workers.cli import doctor as checks_module
from tangram_workers.cli.options import echo_json, json_option
from tangram_workers.runtime.settings import load_settings


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check this machine: what is there, what is missing, and the command that mends it."""
    checks = checks_module.run_checks(load_settings())
    if as_json:
        echo_json(checks_module.to_builtins(checks))
    else:
        Console().print(checks_module.render(checks))
    sys.exit(checks_module.exit_code(checks))
