"""`tangram worker`: one worker process in the foreground."""

from __future__ import annotations

import logging
import os
import sys
import time

import click

from tangram_workers.cli.options import echo_json, json_option, overrides, sandbox_option
from tangram_workers.domain.errors import UnknownQueueError
from tangram_workers.domain.queues import CPU_QUEUE
from tangram_workers.resources.cores import usable_cores
from tangram_workers.runtime.fleet_file import find_broker
from tangram_workers.runtime.logs import set_up_logs
from tangram_workers.runtime.settings import load_settings
from tangram_workers.runtime.settings_checks import variable_name
from tangram_workers.sandbox.factory import make_driver

log = logging.getLogger(__name__)

#: Pause before a worker that ended by itself starts again, in seconds.
RESTART_PAUSE_S = 1.0


@click.command()
@click.option(
    "--queues", default=CPU_QUEUE, show_default=True, help="Queues to serve, separated by commas."
)
@click.option("--name", default=None, help="Name in Flower and in results. Default: cpu@NODE.")
@sandbox_option
@json_option
def worker(queues: str, name: str | None, sandbox: str | None, as_json: bool) -> None:
    """Take actions from the fleet's queues and run them, one for each core, until stopped.

    SIGTERM or Ctrl-C drains: nothing new is taken, what runs is finished.
    """
    settings = load_settings(**overrides(sandbox_driver=sandbox))
    for queue in queues.split(","):
        if queue != CPU_QUEUE:
            raise UnknownQueueError(
                f"--queues={queues!r}: this version's workers run commands and serve queue "
                f"{CPU_QUEUE!r} only."
            )
    url = find_broker(settings)
    cores = usable_cores(settings.cores)
    make_driver(settings)  # says now, not with the first action, what is missing
    set_up_logs()
    name = name or f"{CPU_QUEUE}@{settings.node}"
    if as_json:
        echo_json({"worker": name, "queues": queues.split(","), "cores": list(cores)})
    # The Celery app reads its settings when it is imported, in this process and in none else.
    os.environ[variable_name("broker_url")] = url
    if sandbox is not None:
        os.environ[variable_name("sandbox_driver")] = sandbox
    from tangram_workers.tasks.app import run_worker  # after the settings are known

    if run_worker(name, queues, len(cores)):
        return
    # On a lost connection the stock transport can bring Celery down. Leases see to its actions;
    # what is needed is a worker, and a fresh process is the surest way to a sound one.
    log.error("the worker ended by itself; it starts again")
    time.sleep(RESTART_PAUSE_S)
    os.execv(sys.executable, [sys.executable, "-m", "tangram_workers.cli", *sys.argv[1:]])
