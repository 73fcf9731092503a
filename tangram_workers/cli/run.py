"""`tangram run`: one program on the fleet."""

from __future__ import annotations

import sys

import click

from tangram_workers.cli.options import echo_json, json_option
from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.domain.resources import MIB, Elasticity, ResourceVector
from tangram_workers.domain.result import ActionResult, Outcome
from tangram_workers.sdk.blocking import BlockingClient
from tangram_workers.wire.codec import result_to_builtins

#: Exit codes for outcomes that have none of their own; 124 and 137 are what `timeout` and a shell
#: give for the same endings.
EXIT_CODES = {
    Outcome.TIMED_OUT: 124,
    Outcome.OOM: 137,
    Outcome.CANCELLED: 130,
    Outcome.EXPIRED: 75,
    Outcome.INFRASTRUCTURE_ERROR: 70,
}


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--timeout-s", type=float, default=60.0, show_default=True, help="Run time allowed.")
@click.option(
    "--queue-timeout-s", type=float, default=3600.0, show_default=True, help="Wait allowed."
)
@click.option("--cores", default="1", show_default=True, help="Cores, as N or MIN:MAX.")
@click.option("--memory-mib", type=int, default=1024, show_default=True, help="Memory allowed.")
@click.option("--trajectory", default=None, help="Trajectory whose workspace it runs in.")
@json_option
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    timeout_s: float,
    queue_timeout_s: float,
    cores: str,
    memory_mib: int,
    trajectory: str | None,
    as_json: bool,
    argv: tuple[str, ...],
) -> None:
    """Run a program in a sandbox of the running fleet: tangram run [OPTIONS] -- PROGRAM ARGS.

    The exit code is the program's own; 124 says that it timed out, 137 out of memory, 130
    cancelled, 75 expired in the queue, 70 that the fleet failed it.
    """
    minimum, maximum = _core_range(cores)
    with BlockingClient() as client:
        result = client.run(
            argv,
            timeout_s=timeout_s,
            queue_timeout_s=queue_timeout_s,
            trajectory_id=trajectory,
            elasticity=Elasticity(min_units=minimum, max_units=maximum),
            resources=ResourceVector(memory_bytes=memory_mib * MIB),
        )
    if as_json:
        echo_json(result_to_builtins(result))
    else:
        click.echo(result.stdout, nl=False)
        click.echo(result.stderr, nl=False, err=True)
        if result.outcome not in (Outcome.SUCCEEDED, Outcome.FAILED):
            click.echo(f"{result.outcome}: {result.error}", err=True)
    sys.exit(exit_code(result))


def exit_code(result: ActionResult) -> int:
    """Return the exit code that stands for a result."""
    if result.outcome in EXIT_CODES:
        return EXIT_CODES[result.outcome]
    return result.exit_code or 0


def _core_range(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    try:
        return int(low), int(high or low)
    except ValueError:
        raise InvalidActionError("--cores", text, "give N or MIN:MAX, such as 1:4.") from None
