"""`tangram flower`: the operators' view."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import sys

import click

from tangram_workers.cli.options import echo_json, json_option, overrides
from tangram_workers.domain.errors import MissingPartError, SettingsError
from tangram_workers.runtime.fleet_file import find_broker
from tangram_workers.runtime.settings import load_settings
from tangram_workers.runtime.settings_checks import variable_name

#: Tasks that Flower keeps in memory; without a bound its memory grows with the run.
MAX_TASKS = 20_000


@click.command()
@click.option("--address", default=None, help="Default: TANGRAM_FLOWER_ADDRESS.")
@click.option("--port", type=int, default=None, help="Default: TANGRAM_FLOWER_PORT.")
@click.option(
    "--basic-auth",
    default=None,
    envvar="FLOWER_BASIC_AUTH",
    metavar="USER:PASSWORD",
    help="Ask for a password. The variable FLOWER_BASIC_AUTH keeps it out of the process list.",
)
@json_option
def flower(address: str | None, port: int | None, basic_auth: str | None, as_json: bool) -> None:
    """Show workers, tasks and queue lengths in a browser, until stopped."""
    settings = load_settings(**overrides(flower_address=address, flower_port=port))
    if importlib.util.find_spec("flower") is None:
        raise MissingPartError(
            "Flower is not installed. Install it with `pip install 'tangram-workers[flower]'`."
        )
    if basic_auth is None and not _is_loopback(settings.flower_address):
        raise SettingsError(
            f"{variable_name('flower_address')}={settings.flower_address!r} can be reached from "
            "other machines, and Flower can stop workers. Give --basic-auth USER:PASSWORD, or "
            "listen on 127.0.0.1."
        )
    os.environ[variable_name("broker_url")] = find_broker(settings)
    # Flower refuses its own API without a password unless told so; here only this machine asks.
    os.environ["FLOWER_UNAUTHENTICATED_API"] = "true" if basic_auth is None else "false"
    url = f"http://{settings.flower_address}:{settings.flower_port}"
    if as_json:
        echo_json({"url": url})
    else:
        click.echo(f"Flower is at {url}", err=True)
    arguments = [
        "flower",
        f"--address={settings.flower_address}",
        f"--port={settings.flower_port}",
        f"--max-tasks={MAX_TASKS}",
        "--purge-offline-workers=60",
        "--logging=warning",
    ]
    if basic_auth is not None:
        # By environment: a command line is there for all to read.
        os.environ["FLOWER_BASIC_AUTH"] = basic_auth
    sys.stdout.flush()
    os.execv(
        sys.executable,
        [sys.executable, "-m", "celery", "-A", "tangram_workers.tasks.app", *arguments],
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
