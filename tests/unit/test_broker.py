"""The seam between actions and Celery: calls, messages, the routing hook."""

from __future__ import annotations

from typing import Any

import pytest

from tangram_workers.broker.calls import (
    action_from_call,
    kind_of_task,
    message_kwargs,
    task_name,
)
from tangram_workers.broker.publisher import action_id_for
from tangram_workers.broker.routing import OFFSET_OPTION, ActionRoutes
from tangram_workers.domain.action import Action, ActionKind, Command
from tangram_workers.domain.errors import BrokerUnavailableError, InvalidActionError
from tangram_workers.runtime.settings import load_settings
from tangram_workers.scheduling.estimator import Estimate


def test_task_names_tell_the_kind() -> None:
    assert [kind_of_task(task_name(kind)) for kind in ActionKind] == list(ActionKind)
    assert kind_of_task("celery.backend_cleanup") is None
    assert kind_of_task("tangram.other") is None


def test_a_call_has_the_fields_of_command_and_action_side_by_side() -> None:
    action = action_from_call(
        ActionKind.COMMAND,
        (["python3", "-V"],),
        {"env": {"A": "1"}, "timeout_s": 5, "trajectory_id": "t"},
    )
    assert action == Action(
        command=Command(argv=("python3", "-V"), env={"A": "1"}), timeout_s=5, trajectory_id="t"
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((["a"], ["b"]), {}, "only argv"),
        ((["a"],), {"argv": ["b"]}, "given twice"),
        ((), {"argv": ["a"], "time_out": 3}, "time_out"),
        ((), {"action_id": "x"}, "action_id"),
        ((), {}, "command.argv|argv"),
    ],
)
def test_a_wrong_call_is_refused(args: Any, kwargs: Any, words: str) -> None:
    with pytest.raises(InvalidActionError, match=words):
        action_from_call(ActionKind.COMMAND, args, kwargs)


def test_a_message_shows_who_and_never_the_payload() -> None:
    secret = "s" * 1000
    action = Action(
        command=Command(
            argv=("python3", "main.py", "x" * 500), stdin=secret, files={"main.py": secret}
        ),
        trajectory_id="t-1",
        step_id="7",
    )
    shown = message_kwargs("a1", action)
    assert shown["action_id"] == "a1"
    assert shown["kind"] == "command"
    assert shown["trajectory_id"] == "t-1"
    assert shown["step_id"] == "7"
    assert shown["program"].startswith("python3 main.py")
    assert len(str(shown)) < 300
    assert secret not in str(shown)


def test_an_idempotency_key_decides_the_id() -> None:
    keyed = Action(command=Command(argv=("a",)), idempotency_key="k")
    free = Action(command=Command(argv=("a",)))
    assert action_id_for(keyed) == action_id_for(keyed)
    assert action_id_for(free) != action_id_for(free)


def test_the_hook_routes_actions_and_leaves_everything_else_alone() -> None:
    routes = ActionRoutes(load_settings(), dict)
    action = Action(command=Command(argv=("a",)), trajectory_id="t", last_of_trajectory=True)
    route = routes("tangram.command", (), {"action": action}, {})
    assert route is not None
    assert route["queue"] == "cpu"
    assert route[OFFSET_OPTION] < 0
    assert routes("tangram.command", (), {"action_id": "a1"}, {}) is None
    assert routes("somebody.elses", (1,), None, {}) is None


def test_a_broker_that_is_away_leaves_the_old_estimates_in_use() -> None:
    answers: list[dict[str, Estimate]] = [{"*": Estimate(0.0, 0.0, 5)}]

    def read() -> dict[str, Estimate]:
        if not answers:
            raise BrokerUnavailableError("away")
        return answers.pop()

    routes = ActionRoutes(load_settings(), read)
    first = routes.snapshot
    routes._read_at = float("-inf")  # the snapshot has grown old
    assert routes.snapshot.estimates == first.estimates != {}
