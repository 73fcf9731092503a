"""Programs that do what they can against the fleet: right outcome, worker alive, nothing left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tangram_workers import BlockingClient, Outcome
from tangram_workers.local.fleet import Fleet
from tests.support.processes import find_processes, make_marker
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def client(fleet: Fleet) -> Iterator[BlockingClient]:
    with BlockingClient(broker_url=fleet.url) as client:
        yield client


@pytest.fixture
def marker(fleet: Fleet, client: BlockingClient) -> Iterator[str]:
    """An argument by which a program's processes are found; none may be left at the end."""
    workers = fleet.worker_pids
    marker = make_marker()
    yield marker
    assert wait_until(lambda: not find_processes(marker))
    assert fleet.worker_pids == workers
    assert client.run(["echo", "alive"]).stdout == "alive\n"


FLOOD = """
block = b"x" * 2**20
import os
for _ in range(1024):
    os.write(1, block)
"""
DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
print("done")
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("still here", flush=True)
time.sleep(float(sys.argv[1]))
"""


def test_a_gigabyte_of_output(client: BlockingClient, marker: str) -> None:
    result = client.run(["python3", "-c", FLOOD, marker], timeout_s=60)
    assert result.outcome is Outcome.SUCCEEDED
    assert result.stdout_truncated
    assert len(result.stdout) == 1024 * 1024


def test_a_fork_bomb(client: BlockingClient, marker: str) -> None:
    script = f"bomb() {{ bomb | bomb & }}; bomb; sleep {marker}"
    result = client.run(["sh", "-c", script], timeout_s=1)
    assert result.outcome in (Outcome.TIMED_OUT, Outcome.FAILED)


def test_ignoring_sigterm(client: BlockingClient, marker: str) -> None:
    result = client.run(["python3", "-c", STUBBORN, marker], timeout_s=0.5)
    assert result.outcome is Outcome.TIMED_OUT
    assert result.stdout == "still here\n"


def test_a_daemon_that_holds_the_output(client: BlockingClient, marker: str) -> None:
    result = client.run(["python3", "-c", DAEMON, marker], timeout_s=30)
    assert result.outcome is Outcome.SUCCEEDED
    assert result.stdout == "done\n"
    assert result.timings.run_s < 20  # it did not wait for the daemon


def test_leaving_without_a_word(client: BlockingClient, marker: str) -> None:
    result = client.run(["python3", "-c", "import os; os._exit(9)", marker])
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 9)


def test_killing_everything_it_can_see(client: BlockingClient, marker: str) -> None:
    result = client.run(["sh", "-c", f"kill -9 -1; sleep {marker}"], timeout_s=1)
    assert result.outcome in (Outcome.TIMED_OUT, Outcome.FAILED)


def test_looking_for_the_brokers_password(client: BlockingClient, marker: str) -> None:
    script = "env; cat /proc/*/environ | tr '\\0' '\\n'"
    result = client.run(["sh", "-c", script, marker])
    assert "TANGRAM_BROKER_URL" not in result.stdout
    assert "redis://" not in result.stdout


def test_pathological_actions_do_not_hold_up_the_next(client: BlockingClient, marker: str) -> None:
    spin = ["python3", "-c", "while True: pass", marker]
    handles = [client.run(spin, timeout_s=0.3).outcome for _ in range(4)]
    assert handles == [Outcome.TIMED_OUT] * 4
    assert client.run(["true"]).outcome is Outcome.SUCCEEDED
