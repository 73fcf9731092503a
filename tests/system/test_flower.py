"""Flower, as `tangram flower` and as plain Celery start it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tangram_workers import Action, ApiCall, BlockingClient, Command, Score
from tangram_workers.local.fleet import Fleet
from tangram_workers.local.redis_server import RedisServer
from tangram_workers.runtime.settings import load_settings, settings_environment
from tests.support.cli import command
from tests.support.waiting import wait_until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def flower(arguments: Sequence[str], environment: dict[str, str], port: int) -> Iterator[str]:
    """Run Flower while the block runs; yields its base URL."""
    process = subprocess.Popen(
        arguments,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: process.poll() is None and _listens(port), what="Flower listens")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # our own address
        return json.load(answer)


def lengths(base: str) -> dict[str, int]:
    queues = get(f"{base}/api/queues/length")["active_queues"]
    return {queue["name"]: queue["messages"] for queue in queues}


def test_queue_lengths_are_true_for_every_resource_type(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    settings = load_settings(
        broker_url=redis_server.url,
        data_dir=tmp_path,
        key_prefix="flower-lengths",
        models=("rm-a",),
        providers=("judge",),
    )
    commands = [
        Action(
            command=Command(argv=("true",)), trajectory_id=f"t{i}", last_of_trajectory=i % 2 == 0
        )
        for i in range(40)
    ]
    scores = [
        Action(score=Score(model="rm-a", responses=("a",), references=("b",))) for _ in range(7)
    ]
    calls = [Action(api_call=ApiCall(provider="judge", path="chat")) for _ in range(3)]
    with BlockingClient(settings=settings) as client:
        client.submit_many([*commands, *scores, *calls])
        waiting = client.status()["waiting"]
    assert waiting == {"cpu": 40, "gpu.rm-a": 7, "api.judge": 3}
    port = free_port()
    with flower(
        command(["flower", "--port", str(port)]), settings_environment(settings), port
    ) as base:
        assert lengths(base) == waiting


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, BlockingClient]]:
    """A fleet of one core, so that it is easily kept busy."""
    settings = load_settings(data_dir=tmp_path_factory.mktemp("fleet"), cores=1)
    with Fleet(settings) as fleet, BlockingClient(broker_url=fleet.url) as client:
        yield fleet, client


def test_workers_tasks_and_lengths_of_a_running_fleet(
    busy: tuple[Fleet, BlockingClient],
) -> None:
    fleet, client = busy
    port = free_port()
    arguments = command(["flower", "--port", str(port)])
    with flower(arguments, {"TANGRAM_BROKER_URL": fleet.url}, port) as base:
        wait_until(lambda: get(f"{base}/api/workers?status=1"), what="a worker in Flower")
        secret = "payload-that-nobody-must-see " * 50
        done = client.run(["cat"], stdin=secret, trajectory_id="episode-9", step_id="step-1")
        assert done.stdout == secret
        tasks = wait_until(
            lambda: {
                uuid: task
                for uuid, task in get(f"{base}/api/tasks").items()
                if task["state"] == "SUCCESS"
            }
        )
        task = tasks[done.action_id]
        assert task["name"] == "tangram.command"
        assert "episode-9" in task["kwargs"]
        assert "step-1" in task["kwargs"]
        assert "'command'" in task["kwargs"]
        assert "payload" not in json.dumps(task)

        blocker = client.submit(Action(command=Command(argv=("sleep", "60"))))
        wait_until(lambda: client.status()["running"] == 1)
        waiting = client.submit_many([Action(command=Command(argv=("true",))) for _ in range(25)])
        assert wait_until(lambda: lengths(base)) == {"cpu": 25}
        for handle in [*waiting, blocker]:
            client.cancel(handle)


def test_plain_celery_starts_flower_too(busy: tuple[Fleet, BlockingClient]) -> None:
    fleet, _ = busy
    port = free_port()
    arguments = [
        sys.executable, "-m", "celery", "-A", "tangram_workers.tasks.app",
        "flower", "--address=127.0.0.1", f"--port={port}",
    ]  # fmt: skip
    environment = {"TANGRAM_BROKER_URL": fleet.url, "FLOWER_UNAUTHENTICATED_API": "true"}
    with flower(arguments, environment, port) as base:
        wait_until(lambda: get(f"{base}/api/workers?status=1"), what="a worker in Flower")
        assert "cpu" in lengths(base)


def test_a_password_is_asked_for_where_one_was_given(
    busy: tuple[Fleet, BlockingClient],
) -> None:
    fleet, _ = busy
    port = free_port()
    environment = {"TANGRAM_BROKER_URL": fleet.url, "FLOWER_BASIC_AUTH": "ops:secret-word"}
    with flower(command(["flower", "--port", str(port)]), environment, port) as base:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{base}/api/queues/length")
        lines = subprocess.run(
            ["ps", "-eo", "args"], capture_output=True, text=True, check=True
        ).stdout
        assert "secret-word" not in lines


def test_listening_beyond_this_machine_needs_a_password(
    busy: tuple[Fleet, BlockingClient],
) -> None:
    fleet, _ = busy
    done = subprocess.run(
        command(["flower", "--address", "0.0.0.0"]),  # noqa: S104  # that it is refused is the test
        env={**os.environ, "TANGRAM_BROKER_URL": fleet.url},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "--basic-auth" in done.stderr
