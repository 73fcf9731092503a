"""A worker that no supervisor looks after, while its Redis dies again and again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangram_workers import Action, BlockingClient, Command
from tangram_workers.local.redis_server import RedisServer
from tests.support.cli import command
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def worker(server: RedisServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "TANGRAM_BROKER_URL": server.url, "TANGRAM_LEASE_S": "1"}
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(command(["worker"]), env=environment, stdout=log, stderr=log)
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_it_outlives_every_death_of_its_redis(
    server: RedisServer, worker: subprocess.Popen[bytes]
) -> None:
    with BlockingClient(broker_url=server.url) as client:
        for round_number in range(3):
            action = Action(command=Command(argv=("sh", "-c", f"sleep 1; echo {round_number}")))
            handle = client.submit(action)
            wait_until(lambda: client.status()["running"] == 1)
            os.kill(server.pid or 0, signal.SIGKILL)
            wait_until(lambda: not server.is_running)
            server.start()
            assert handle.wait(60).stdout == f"{round_number}\n"
            assert worker.poll() is None
