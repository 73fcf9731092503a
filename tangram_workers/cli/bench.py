"""`tangram bench`: what the broker costs, measured on this machine."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from tangram_workers.cli.options import echo_json, json_option


@click.group()
def bench() -> None:
    """Measure on this machine. Each benchmark starts and stops all that it needs."""


@bench.command("broker")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Of each part."
)
@click.option(
    "--size",
    type=click.IntRange(10, 100_000),
    default=1000,
    show_default=True,
    help="Tasks in a batch; the targets are meant for the default.",
)
@click.option(
    "--pool",
    type=click.Choice(["prefork", "threads"]),
    default=None,
    help="Celery's pool. Default: the one with which its own transport is faster here.",
)
@json_option
def broker(rounds: int, size: int, pool: str | None, as_json: bool) -> None:
    """Compare plain Celery on its own Redis transport and on this one, in turn.

    The exit code is 0 if every target is met, 1 if it was measured and one is not, 2 if it could
    not be measured.
    """
    from tangram_workers.bench.broker.run import BrokerConfig, run_broker
    from tangram_workers.bench.demo.progress import RichProgress

    with RichProgress(Console(stderr=True)) as progress:
        report = run_broker(BrokerConfig(rounds=rounds, size=size, pool=pool), progress)
    if as_json:
        echo_json(report.to_json())
    else:
        Console().print(report.to_table())
    sys.exit(0 if report.is_met else 1)
