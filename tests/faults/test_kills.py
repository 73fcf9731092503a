"""`kill -9` of every part of a running fleet: nothing is lost, every waiter is answered."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tangram_workers import (
    Action,
    ActionHandle,
    BlockingClient,
    BrokerUnavailableError,
    Command,
    Outcome,
)
from tangram_workers.local.fleet import Fleet
from tangram_workers.runtime.settings import load_settings
from tests.support.waiting import wait_until

LEASE_S = 1.0


@pytest.fixture
def own_fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(load_settings(data_dir=tmp_path, lease_s=LEASE_S)) as running:
        yield running


@pytest.fixture
def client(own_fleet: Fleet) -> Iterator[BlockingClient]:
    with BlockingClient(broker_url=own_fleet.url) as client:
        yield client


def pool_pids(fleet: Fleet) -> list[int]:
    """Processes in which the worker runs its actions."""
    [main] = fleet.worker_pids
    return [int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split()]


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def start_and_wait(client: BlockingClient) -> ActionHandle:
    """Submit an action that takes a second and wait until it runs."""
    handle = client.submit(Action(command=Command(argv=("sh", "-c", "sleep 1; echo done"))))
    wait_until(lambda: client.status()["running"] == 1)
    return handle


KILLS: dict[str, Callable[[Fleet], None]] = {
    "pool process": lambda fleet: kill(pool_pids(fleet)),
    "worker": lambda fleet: kill(fleet.worker_pids),
    "worker and its pool": lambda fleet: kill([*fleet.worker_pids, *pool_pids(fleet)]),
    "redis": lambda fleet: kill([fleet.redis_pid or 0]),
}


@pytest.mark.parametrize("part", KILLS)
def test_the_waiter_of_a_running_action_is_answered(
    own_fleet: Fleet, client: BlockingClient, part: str
) -> None:
    handle = start_and_wait(client)
    KILLS[part](own_fleet)
    result = handle.wait(60)
    assert result.outcome is Outcome.SUCCEEDED
    assert result.stdout == "done\n"


@pytest.mark.parametrize("part", KILLS)
def test_nothing_of_a_burst_is_lost(own_fleet: Fleet, client: BlockingClient, part: str) -> None:
    handles = client.submit_many(
        [Action(command=Command(argv=("sh", "-c", f"sleep 0.02; echo {i}"))) for i in range(60)]
    )
    wait_until(lambda: sum(handle.is_done for handle in handles) >= 5)
    KILLS[part](own_fleet)
    deadline = time.monotonic() + 90
    results = [handle.wait(max(0.1, deadline - time.monotonic())) for handle in handles]
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(60)]


def test_an_action_that_runs_when_redis_dies_is_not_run_twice(
    own_fleet: Fleet, client: BlockingClient
) -> None:
    argv = ("sh", "-c", "echo start >> log; sleep 3; cat log")
    handle = client.submit(Action(command=Command(argv=argv), trajectory_id="once"))
    wait_until(lambda: client.status()["running"] == 1)
    time.sleep(1.2)  # so that what Redis writes each second holds the claim
    kill([own_fleet.redis_pid or 0])
    result = handle.wait(60)
    assert (result.stdout, result.attempt) == ("start\n", 1)


def test_an_action_that_kills_its_workers_ends_with_their_story(
    own_fleet: Fleet, client: BlockingClient
) -> None:
    handle = client.submit(Action(command=Command(argv=("sleep", "60"))))
    killed: set[int] = set()

    def hunt() -> bool:
        if client.status()["running"] == 1:
            fresh = [pid for pid in pool_pids(own_fleet) if pid not in killed]
            kill(fresh)
            killed.update(fresh)
        return handle.is_done

    wait_until(hunt, timeout_s=90)
    result = handle.wait()
    assert result.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert result.attempt == 3
    assert "attempt 3 of 3" in (result.error or "")
    assert client.run(["echo", "still here"]).stdout == "still here\n"


def test_a_message_lost_between_record_and_queue_is_published_again(
    own_fleet: Fleet, client: BlockingClient
) -> None:
    kill(own_fleet.worker_pids)
    handle = client.submit(Action(command=Command(argv=("echo", "found"))))
    store = client._require_engine()._store
    # What a crash of client, worker or broker can leave: the record, and no message for it.
    for key in store.client.scan_iter("tangram:mq:cpu*"):
        store.client.delete(key)
    assert handle.wait(60).stdout == "found\n"


def test_an_action_that_the_broker_forgot_is_submitted_again(
    own_fleet: Fleet, client: BlockingClient
) -> None:
    kill(own_fleet.worker_pids)
    handle = client.submit(Action(command=Command(argv=("echo", "remembered"))))
    # What a Redis leaves that comes back with older data, or with none.
    client._require_engine()._store.client.flushall()
    assert handle.wait(60).stdout == "remembered\n"


def test_without_any_worker_the_queue_time_still_answers(
    own_fleet: Fleet, client: BlockingClient
) -> None:
    [pid] = own_fleet.worker_pids
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: client.status()["workers"] == {})
        handle = client.submit(Action(command=Command(argv=("true",)), queue_timeout_s=0.5))
        assert handle.wait(30).outcome is Outcome.EXPIRED
    finally:
        os.kill(pid, signal.SIGCONT)


def test_stopping_the_fleet_finishes_what_runs_and_keeps_what_waits(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, lease_s=LEASE_S, cores=1)
    with Fleet(settings) as fleet, BlockingClient(broker_url=fleet.url) as client:
        running = client.submit(Action(command=Command(argv=("sh", "-c", "sleep 1; echo a"))))
        wait_until(lambda: client.status()["running"] == 1)
        waiting = client.submit(Action(command=Command(argv=("echo", "b")), idempotency_key="kept"))
        fleet.stop()
        assert running.wait(5).stdout == "a\n"
        assert not waiting.is_done
    with Fleet(settings) as fleet, BlockingClient(broker_url=fleet.url) as client:
        again = client.submit(Action(command=Command(argv=("echo", "b")), idempotency_key="kept"))
        assert again.wait(30).stdout == "b\n"


def test_a_broker_that_hangs_is_told_in_time_and_loses_nothing(tmp_path: Path) -> None:
    settings = load_settings(data_dir=tmp_path, lease_s=LEASE_S, connect_timeout_s=1.0)
    with (
        Fleet(settings) as fleet,
        BlockingClient(settings=settings, broker_url=fleet.url) as client,
    ):
        handle = start_and_wait(client)
        os.kill(fleet.redis_pid or 0, signal.SIGSTOP)
        try:
            started = time.monotonic()
            with pytest.raises(BrokerUnavailableError, match="does not answer"):
                client.submit(Action(command=Command(argv=("true",))))
            assert time.monotonic() - started < 10  # a bound, not a speed: it did not hang
        finally:
            os.kill(fleet.redis_pid or 0, signal.SIGCONT)
        assert handle.wait(60).stdout == "done\n"
