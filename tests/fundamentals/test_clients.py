"""How clients are used: many at once, cancelled, from threads and loops, after a fork."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tangram_workers import (
    Action,
    ActionKind,
    ActionResult,
    BlockingClient,
    BrokerUnavailableError,
    Client,
    ClientClosedError,
    Command,
    InvalidActionError,
    NoFleetError,
    Outcome,
    Score,
    UnknownQueueError,
)
from tangram_workers.local.fleet import Fleet
from tangram_workers.runtime.settings import load_settings
from tests.support.waiting import wait_until


def running_count(client: Client) -> int:
    return int(asyncio.run(client.status())["running"])


def echo(text: str) -> Action:
    return Action(command=Command(argv=("echo", text)))


async def test_many_actions_take_one_call(client: Client) -> None:
    handles = await client.submit_many(echo(str(i)) for i in range(200))
    results = await client.gather(handles)
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(200)]


async def test_one_failure_never_loses_the_others(client: Client) -> None:
    actions = [echo(str(i)) for i in range(63)]
    actions.insert(20, Action(command=Command(argv=("false",))))
    results = await client.gather(await client.submit_many(actions))
    outcomes = [result.outcome for result in results]
    assert outcomes.count(Outcome.SUCCEEDED) == 63
    assert outcomes[20] is Outcome.FAILED


async def test_a_handle_may_be_awaited_by_several(client: Client) -> None:
    handle = await client.submit(echo("once"))
    results = await asyncio.gather(*(handle.result() for _ in range(5)))
    assert {result.stdout for result in results} == {"once\n"}


async def test_giving_up_a_wait_leaves_the_action_alone(client: Client) -> None:
    handle = await client.submit(Action(command=Command(argv=("sleep", "0.5"))))
    with pytest.raises(TimeoutError):
        await handle.result(timeout_s=0.05)
    assert (await handle).outcome is Outcome.SUCCEEDED


async def test_what_runs_is_cancelled(client: Client) -> None:
    # What another test left running must not be taken for this one's.
    await asyncio.to_thread(wait_until, lambda: running_count(client) == 0)
    handle = await client.submit(
        Action(command=Command(argv=("sh", "-c", "echo started; sleep 60")))
    )
    await asyncio.to_thread(wait_until, lambda: running_count(client) == 1)
    assert await client.cancel(handle) == "asked"
    result = await handle.result(timeout_s=20)
    assert result.outcome is Outcome.CANCELLED


async def test_what_waits_is_cancelled_at_once(client: Client) -> None:
    running = await client.submit_many(
        [Action(command=Command(argv=("sleep", "1"))) for _ in range(os.cpu_count() or 1)]
    )
    waiting = await client.submit(Action(command=Command(argv=("sleep", "60"))))
    assert await client.cancel(waiting) in ("cancelled", "asked")
    assert (await waiting.result(timeout_s=20)).outcome is Outcome.CANCELLED
    assert await client.cancel(waiting) == "ended"
    await client.gather(running)


async def test_bad_input_is_refused_before_anything_is_queued(client: Client) -> None:
    with pytest.raises(UnknownQueueError, match="rm-missing"):
        await client.submit_many(
            [
                echo("never"),
                Action(score=Score(model="rm-missing", responses=("a",), references=("b",))),
            ]
        )
    with pytest.raises(InvalidActionError, match="language"):
        await client.run_code("print(1)", language="cobol")
    status = await client.status()
    assert status["waiting"] == {"cpu": 0}


def test_scripts_need_no_event_loop(blocking_client: BlockingClient) -> None:
    assert blocking_client.run_code("print('hi')").stdout == "hi\n"
    handles = blocking_client.submit_many([echo("a"), echo("b")])
    assert [r.stdout for r in blocking_client.gather(handles)] == ["a\n", "b\n"]


async def test_the_blocking_client_works_inside_a_running_loop(
    blocking_client: BlockingClient,
) -> None:
    assert blocking_client.run(["echo", "in a loop"]).stdout == "in a loop\n"


def test_one_client_serves_many_threads(blocking_client: BlockingClient) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: blocking_client.run(["echo", str(i)]), range(32)))
    assert [result.stdout for result in results] == [f"{i}\n" for i in range(32)]


async def test_one_client_serves_many_event_loops(client: Client) -> None:
    results: list[ActionResult] = []

    def other_loop() -> None:
        results.append(asyncio.run(client.run(["echo", "elsewhere"])))

    threads = [threading.Thread(target=other_loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    here = await client.run(["echo", "here"])
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert here.stdout == "here\n"
    assert [result.stdout for result in results] == ["elsewhere\n"] * 4


# The child of a fork inherits threads' locks as they were; that is what is tried here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_client_goes_on_working_after_a_fork(blocking_client: BlockingClient) -> None:
    assert blocking_client.run(["echo", "parent"]).stdout == "parent\n"
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        sender.send(blocking_client.run(["echo", "child"]).stdout)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert receiver.poll(30)
    assert receiver.recv() == "child\n"
    process.join(30)
    assert process.exitcode == 0
    assert blocking_client.run(["echo", "parent again"]).stdout == "parent again\n"


async def test_a_client_is_used_inside_its_context(fleet: Fleet) -> None:
    client = Client(broker_url=fleet.url)
    with pytest.raises(ClientClosedError, match="async with"):
        await client.run(["true"])
    async with client:
        handle = await client.submit(Action(command=Command(argv=("sleep", "2"))))
    with pytest.raises(ClientClosedError, match=handle.action_id):
        await handle


async def test_a_broker_that_is_not_there_is_told_in_time() -> None:
    settings = load_settings(
        broker_url="redis://:secret@127.0.0.1:1/0",
        connect_timeout_s=1,  # nothing listens there
    )
    with pytest.raises(BrokerUnavailableError) as caught:
        async with Client(settings=settings):
            pass
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_without_a_fleet_the_error_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("TANGRAM_DATA_DIR", str(tmp_path))
    with pytest.raises(NoFleetError, match="tangram up"):
        async with Client():
            pass


def test_every_kind_of_action_has_a_queue_of_its_resource_type() -> None:
    assert echo("x").queue == "cpu"
    score = Action(score=Score(model="rm-a", responses=("a",), references=("b",)))
    assert (score.kind, score.queue) == (ActionKind.SCORE, "gpu.rm-a")
