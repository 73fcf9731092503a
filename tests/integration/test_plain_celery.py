"""Plain Celery callers: the same router, the same records, a Celery result."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import group

from tangram_workers import BlockingClient, InvalidActionError, UnknownQueueError
from tangram_workers.broker.app import TangramCelery, make_app
from tangram_workers.local.fleet import Fleet
from tangram_workers.runtime.settings import load_settings
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def app(fleet: Fleet) -> Iterator[TangramCelery]:
    app = make_app(load_settings(lease_s=1.0), fleet.url)
    yield app
    app.close()


def test_a_call_by_name_gives_the_actions_result(app: TangramCelery) -> None:
    answer = app.send_task("tangram.command", kwargs={"argv": ["echo", "hi"], "timeout_s": 5})
    result = answer.get(timeout=30)
    assert result["outcome"] == "succeeded"
    assert result["stdout"] == "hi\n"
    assert result["action_id"] == answer.id


def test_a_failed_program_is_a_result_and_no_exception(app: TangramCelery) -> None:
    result = app.send_task("tangram.command", [["sh", "-c", "exit 3"]]).get(timeout=30)
    assert (result["outcome"], result["exit_code"]) == ("failed", 3)


def test_the_caller_may_choose_the_id(app: TangramCelery) -> None:
    answer = app.send_task("tangram.command", [["echo", "x"]], task_id="chosen-1")
    assert answer.id == "chosen-1"
    assert answer.get(timeout=30)["action_id"] == "chosen-1"


def test_a_group_is_answered_in_order(app: TangramCelery) -> None:
    calls = [app.signature("tangram.command", args=(["echo", str(i)],)) for i in range(5)]
    results = group(calls, app=app).apply_async().get(timeout=30)
    assert [result["stdout"] for result in results] == [f"{i}\n" for i in range(5)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "gpu.other"}, "router chooses the queue"),
        ({"countdown": 5}, "submit it later"),
        ({"expires": 5}, "queue_timeout_s"),
        ({"time_limit": 5}, "timeout_s"),
        ({"priority": 3}, "router chooses the order"),
    ],
)
def test_what_an_action_cannot_honour_is_refused(
    app: TangramCelery, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidActionError, match=words):
        app.send_task("tangram.command", [["true"]], **options)


def test_bad_calls_are_refused_before_anything_is_queued(app: TangramCelery, fleet: Fleet) -> None:
    with pytest.raises(InvalidActionError, match="timeouts"):
        app.send_task("tangram.command", [["true"]], {"timeouts": 3})
    with pytest.raises(UnknownQueueError, match="rm-x"):
        app.send_task(
            "tangram.score", kwargs={"model": "rm-x", "responses": ["a"], "references": ["b"]}
        )
    with BlockingClient(broker_url=fleet.url) as client:
        assert client.status()["waiting"] == {"cpu": 0}


def test_a_killed_pool_process_is_tried_again_and_the_caller_hears_of_success_only(
    app: TangramCelery, fleet: Fleet
) -> None:
    answer = app.send_task("tangram.command", [["sh", "-c", "sleep 1; echo done"]])
    with BlockingClient(broker_url=fleet.url) as client:
        wait_until(lambda: client.status()["running"] == 1)
    [main] = fleet.worker_pids
    for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    result = answer.get(timeout=60)
    assert result["stdout"] == "done\n"
    assert result["attempt"] == 2


def test_an_action_whose_waiter_is_told_by_the_store_reaches_the_plain_caller_too(
    app: TangramCelery, fleet: Fleet
) -> None:
    blockers = [app.send_task("tangram.command", [["sleep", "1"]]) for _ in range(4)]
    answer = app.send_task("tangram.command", [["true"]], {"queue_timeout_s": 0.2})
    assert answer.get(timeout=60)["outcome"] == "expired"
    for blocker in blockers:
        assert blocker.get(timeout=60)["outcome"] == "succeeded"


def test_a_caller_whose_record_the_broker_lost_is_told(app: TangramCelery, fleet: Fleet) -> None:
    app.send_message(
        "tangram.command", task_id="lost-1", kwargs={"action_id": "lost-1"}, queue="cpu"
    )
    result = app.AsyncResult("lost-1").get(timeout=30)
    assert result["outcome"] == "infrastructure_error"
    assert "no record" in result["error"]
