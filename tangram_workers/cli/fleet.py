"""`tangram up`, `down` and `status`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tangram_workers.cli.options import echo_json, json_option, overrides, sandbox_option
from tangram_workers.domain.errors import NoFleetError
from tangram_workers.local.fleet import READY_TIMEOUT_S, Fleet, FleetStartError, stop_signals
from tangram_workers.runtime.fleet_file import FleetFile
from tangram_workers.runtime.logs import set_up_logs
from tangram_workers.runtime.processes import is_same_process
from tangram_workers.runtime.settings import Settings, load_settings
from tangram_workers.sdk.blocking import BlockingClient
from tangram_workers.stores.redis.connection import mask_url

#: Beyond the workers' own time to drain, in seconds.
STOP_GRACE_S = 30.0


@click.command()
@click.option("--detach", "-d", is_flag=True, help="Return once the fleet is ready.")
@sandbox_option
@json_option
def up(detach: bool, sandbox: str | None, as_json: bool) -> None:
    """Start a fleet on this machine: Redis (unless TANGRAM_BROKER_URL names one) and a worker."""
    settings = load_settings(**overrides(sandbox_driver=sandbox))
    if detach:
        _start_detached(settings, sandbox)
        fleet_file = FleetFile.read(settings.data_dir)
        if fleet_file is None:
            raise FleetStartError("The fleet ended as soon as it was ready; see its logs.")
        _report_ready(settings, fleet_file.pid, fleet_file.broker_url, as_json)
        return
    set_up_logs(logging.WARNING)
    with stop_signals() as stop, Fleet(settings) as fleet:
        _report_ready(settings, os.getpid(), fleet.url, as_json)
        stop.wait()
        if not as_json:
            click.echo("Stopping: workers finish what they run.", err=True)


@click.command()
@json_option
def down(as_json: bool) -> None:
    """Stop the fleet that `tangram up` started: workers drain, Redis keeps what still waits."""
    settings = load_settings()
    fleet_file = FleetFile.read(settings.data_dir)
    if fleet_file is None:
        raise NoFleetError(f"No fleet is running in {settings.data_dir}; there is nothing to stop.")
    os.kill(fleet_file.pid, signal.SIGTERM)
    deadline = time.monotonic() + settings.drain_timeout_s + STOP_GRACE_S
    while is_same_process(fleet_file.pid, fleet_file.start_ticks):
        if time.monotonic() > deadline:
            raise FleetStartError(
                f"Process {fleet_file.pid} of the fleet is still there; look at "
                f"{settings.data_dir / 'logs'} and end it by hand."
            )
        time.sleep(0.05)
    if as_json:
        echo_json({"stopped": fleet_file.pid})
    else:
        click.echo("The fleet has stopped.")


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show workers, what waits in each queue, and what runs."""
    with BlockingClient() as client:
        facts = client.status()
    if as_json:
        echo_json(facts)
        return
    console = Console()
    console.print(f"Broker {facts['broker']}, {facts['running']} actions running")
    workers = Table("worker", "node", "pid", "queues", "cores", "sandbox")
    for name, worker in facts["workers"].items():
        workers.add_row(
            name,
            worker["node"],
            str(worker["pid"]),
            ", ".join(worker["queues"]),
            str(worker["cores"]),
            worker["sandbox"],
        )
    console.print(workers)
    queues = Table("queue", "waiting")
    for queue, count in facts["waiting"].items():
        queues.add_row(queue, str(count))
    console.print(queues)


def _start_detached(settings: Settings, sandbox: str | None) -> None:
    log_path = settings.data_dir / "logs" / "fleet.log"
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    log_path.parent.mkdir(mode=0o700, exist_ok=True)
    command = [sys.executable, "-m", "tangram_workers.cli", "up"]
    if sandbox is not None:
        command += ["--sandbox", sandbox]
    size = log_path.stat().st_size if log_path.exists() else 0
    with log_path.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        fleet_file = FleetFile.read(settings.data_dir)
        if fleet_file is not None and fleet_file.pid == process.pid and fleet_file.phase == "ready":
            return
        if process.poll() is not None:
            raise FleetStartError(f"The fleet did not start: {_log_since(log_path, size)}")
        if time.monotonic() > deadline:
            process.terminate()
            raise FleetStartError(f"The fleet was not ready in time; its log is {log_path}.")
        time.sleep(0.05)


def _log_since(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(4000).decode("utf-8", "replace").strip().removeprefix("Error: ")


def _report_ready(settings: Settings, pid: int, url: str, as_json: bool) -> None:
    if as_json:
        echo_json({"pid": pid, "broker": mask_url(url), "data_dir": str(settings.data_dir)})
        return
    click.echo(
        f"The fleet is ready (process {pid}, {mask_url(url)}).\n"
        "Try `tangram run -- python3 -c 'print(6*7)'`, watch it with `tangram flower`, "
        "stop it with `tangram down`."
    )
