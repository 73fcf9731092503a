"""The router's score: its terms, its bound on overtaking, and unknown queues."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.domain.action import Action, ApiCall, Command, Score
from tangram_workers.domain.errors import UnknownQueueError
from tangram_workers.router.policy import POLICIES, RouterSnapshot, decide
from tangram_workers.scheduling.estimator import Estimate

ACT, FIFO = POLICIES["act"], POLICIES["fifo"]


def command(*, environment: str | None = None, last: bool = False) -> Action:
    return Action(
        command=Command(argv=("true",)),
        environment_key=environment,
        trajectory_id="t",
        last_of_trajectory=last,
    )


def estimate(duration_s: float) -> Estimate:
    return Estimate().observe(duration_s).observe(duration_s)


def test_a_command_waits_in_the_cpu_queue() -> None:
    assert decide(command(), RouterSnapshot(policy=ACT)).queue == "cpu"


def test_models_and_providers_have_queues_of_their_own() -> None:
    snapshot = RouterSnapshot(policy=ACT, models=("rm-a",), providers=("judge",))
    score = Action(score=Score(model="rm-a", responses=("a",), references=("b",)))
    call = Action(api_call=ApiCall(provider="judge", path="chat"))
    assert decide(score, snapshot).queue == "gpu.rm-a"
    assert decide(call, snapshot).queue == "api.judge"
    assert snapshot.queues == ("cpu", "gpu.rm-a", "api.judge")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            Action(score=Score(model="rm-x", responses=("a",), references=("b",))),
            ("score.model='rm-x'", "Known models: rm-a", "TANGRAM_MODELS"),
        ),
        (
            Action(api_call=ApiCall(provider="other", path="chat")),
            ("api_call.provider='other'", "Known providers: none", "TANGRAM_PROVIDERS"),
        ),
    ],
)
def test_an_unknown_name_is_told_with_the_known_ones(
    action: Action, words: tuple[str, ...]
) -> None:
    with pytest.raises(UnknownQueueError) as caught:
        decide(action, RouterSnapshot(policy=ACT, models=("rm-a",)))
    for part in words:
        assert part in str(caught.value)


def test_longer_work_is_moved_back_up_to_a_cap() -> None:
    estimates = {"short|command": estimate(1), "long|command": estimate(50)}
    estimates["huge|command"] = estimate(5000)
    snapshot = RouterSnapshot(policy=ACT, estimates=estimates)
    short, long, huge = (
        decide(command(environment=name), snapshot).offset_s for name in ("short", "long", "huge")
    )
    assert short == pytest.approx(0.3)
    assert long == pytest.approx(15)
    assert huge == pytest.approx(ACT.alpha * ACT.cap_s)


def test_the_last_of_a_trajectory_is_moved_forward() -> None:
    snapshot = RouterSnapshot(policy=ACT)
    ordinary, last = decide(command(), snapshot), decide(command(last=True), snapshot)
    assert ordinary.offset_s - last.offset_s == pytest.approx(ACT.last_credit_s)
    assert any("last of its trajectory" in reason for reason in last.reasons)


def test_fifo_moves_nothing() -> None:
    snapshot = RouterSnapshot(policy=FIFO, estimates={"long|command": estimate(500)})
    assert decide(command(environment="long", last=True), snapshot).offset_s == 0
    assert FIFO.overtaking_bound_s == 0


@given(
    policy=st.sampled_from(list(POLICIES.values())),
    durations_s=st.tuples(st.floats(1e-3, 1e5), st.floats(1e-3, 1e5)),
    lasts=st.tuples(st.booleans(), st.booleans()),
    gap_s=st.floats(0, 1e4),
)
def test_nobody_is_overtaken_by_what_arrives_after_the_bound(
    policy: object, durations_s: tuple[float, float], lasts: tuple[bool, bool], gap_s: float
) -> None:
    assert dataclasses.is_dataclass(policy)
    snapshot = RouterSnapshot(
        policy=policy,  # type: ignore[arg-type]  # drawn from the policies
        estimates={
            "first|command": estimate(durations_s[0]),
            "second|command": estimate(durations_s[1]),
        },
    )
    first = decide(command(environment="first", last=lasts[0]), snapshot)
    second = decide(command(environment="second", last=lasts[1]), snapshot)
    later_s = snapshot.policy.overtaking_bound_s + gap_s
    assert first.offset_s <= later_s + second.offset_s + 1e-9
