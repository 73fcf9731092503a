"""The command tree and its one way of reporting errors."""

from __future__ import annotations

import json
import sys

import click

from tangram_workers import __version__
from tangram_workers.cli.bench import bench
from tangram_workers.cli.check import doctor
from tangram_workers.cli.demo import demo
from tangram_workers.cli.fleet import down, status, up
from tangram_workers.cli.flower import flower
from tangram_workers.cli.run import run
from tangram_workers.cli.worker import worker
from tangram_workers.domain.errors import TangramError

#: Exit code for what the caller or the machine must mend first.
EXIT_ERROR = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tangram")
def cli() -> None:
    """Action-level scheduling for agentic RL.

    Settings come from TANGRAM_* variables; see docs/reference/settings.md.
    """


for command in (up, down, status, run, demo, worker, flower, doctor, bench):
    cli.add_command(command)


def main() -> None:
    """Run the command line; errors of ours become one line and exit code 2."""
    try:
        cli()
    except TangramError as error:
        if "--json" in sys.argv:
            click.echo(json.dumps({"error": type(error).__name__, "message": str(error)}))
        else:
            click.echo(f"Error: {error}", err=True)
        sys.exit(EXIT_ERROR)
