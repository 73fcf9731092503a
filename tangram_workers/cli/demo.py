"""`tangram demo`: the main job, one RL step on real problems."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tangram_workers.bench.demo.plot import check_plot_path, write_plot
from tangram_workers.bench.demo.progress import RichProgress, SilentProgress
from tangram_workers.bench.demo.report import DemoReport
from tangram_workers.bench.demo.run import DemoConfig, run_demo
from tangram_workers.cli.options import echo_json, json_option
from tangram_workers.domain.errors import MissingPartError, NoFleetError, SandboxError
from tangram_workers.local.fleet import Fleet
from tangram_workers.runtime.fleet_file import FleetFile, find_broker
from tangram_workers.runtime.settings import Settings, load_settings
from tangram_workers.sandbox.factory import make_driver
from tangram_workers.sdk.client import Client


@click.command()
@click.option("--problems", type=int, default=None, help="Take only so many problems.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the waits.")
@click.option(
    "--busy-share",
    type=float,
    default=0.30,
    show_default=True,
    help="Share of a trajectory's life for which its actions run.",
)
@click.option(
    "--concurrency", type=int, default=None, help="Trajectories under way at once. Default: all."
)
@click.option("--plot", type=click.Path(path_type=Path), default=None, help="Write a timeline.")
@json_option
def demo(
    problems: int | None,
    seed: int,
    busy_share: float,
    concurrency: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run one RL step on 164 real problems, and the same step with a core for each trajectory.

    Uses the running fleet, else one of its own for as long as it takes. The exit code is 1 if any
    reward, time-out or error is not what it must be.
    """
    if plot is not None:
        check_plot_path(plot)
    console = Console(stderr=True)
    # How many cores there are is known once there is a fleet; all else is checked before.
    config = DemoConfig(
        problems=problems, seed=seed, busy_share=busy_share, concurrency=concurrency, cores=1
    )
    with _fleet_url(console) as (settings, url):
        report = asyncio.run(_run(settings, url, config, console, silent=as_json))
    if plot is not None:
        write_plot(report, plot)
        console.print(f"The timeline is in {plot}.")
    if as_json:
        echo_json(report.to_json())
    else:
        Console().print(report.to_table())
    for fault in report.faults():
        console.print(f"[bold red]Not as it must be:[/] {fault}")
    sys.exit(0 if report.is_ok else 1)


async def _run(
    settings: Settings, url: str, config: DemoConfig, console: Console, *, silent: bool
) -> DemoReport:
    async with Client(settings=settings, broker_url=url) as client:
        workers = (await client.status())["workers"].values()
        cores = sum(worker["cores"] for worker in workers)
        if not cores:
            raise NoFleetError(
                "The fleet has no worker for commands. Start one with `tangram worker`."
            )
        config = replace(config, cores=cores)
        if silent:
            return await run_demo(client, config, SilentProgress())
        with RichProgress(console) as progress:
            return await run_demo(client, config, progress)


@contextlib.contextmanager
def _fleet_url(console: Console) -> Iterator[tuple[Settings, str]]:
    settings = load_settings()
    if settings.broker_url is not None or FleetFile.read(settings.data_dir) is not None:
        yield settings, find_broker(settings)
        return
    with tempfile.TemporaryDirectory(prefix="tangram-demo-") as folder:
        settings = _with_a_driver_that_works(settings, Path(folder), console)
        with Fleet(settings) as fleet:
            yield settings, fleet.url


def _with_a_driver_that_works(settings: Settings, data_dir: Path, console: Console) -> Settings:
    changes: dict[str, Any] = {"data_dir": data_dir}
    try:
        make_driver(settings)
    except (MissingPartError, SandboxError) as error:
        # The demo's programs are the data package's own, so they may run without isolation; for
        # anybody else's code the driver must be asked for by name.
        console.print(
            f"[bold yellow]No isolation:[/] {error}\n"
            "The demo runs its own programs with the `process` driver instead."
        )
        changes["sandbox_driver"] = "process"
    return Settings(**{**_given(settings), **changes})


def _given(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.model_fields_set}
