"""Actions and results survive the wire; what cannot cross it is refused with the field named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.domain.action import MAX_PAYLOAD_BYTES, Action, ApiCall, Command, Score
from tangram_workers.domain.errors import InvalidActionError, PayloadTooLargeError
from tangram_workers.domain.resources import Elasticity, ResourceVector, SpeedupCurve
from tangram_workers.domain.result import ActionResult, Outcome, Timings, Usage
from tangram_workers.domain.reward import RewardRule
from tangram_workers.wire.codec import (
    WireVersionError,
    action_from_fields,
    decode_action,
    decode_result,
    encode_action,
    encode_result,
    result_to_builtins,
)

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
names = st.text("abcxyz019", min_size=1, max_size=12)
ids = st.none() | names
commands = st.builds(
    Command,
    argv=st.lists(names, min_size=1, max_size=4).map(tuple),
    files=st.dictionaries(names, texts, max_size=1),
    stdin=st.none() | texts,
    env=st.dictionaries(names, texts, max_size=3),
)
scores = st.builds(
    lambda model, pairs: Score(
        model=model, responses=tuple(a for a, _ in pairs), references=tuple(b for _, b in pairs)
    ),
    names,
    st.lists(st.tuples(texts, texts), min_size=1, max_size=4),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.builds(
    ApiCall, provider=names, path=names, body=st.dictionaries(texts, json_values, max_size=3)
)


@st.composite
def actions(draw: st.DrawFn) -> Action:
    low = draw(st.integers(1, 64))
    elasticity = Elasticity(
        min_units=low,
        max_units=low + draw(st.integers(0, 64)),
        speedup=SpeedupCurve(exponent=draw(st.floats(0, 1)), floor=draw(st.floats(0, 1))),
    )
    kind, strategy = draw(
        st.sampled_from([("command", commands), ("score", scores), ("api_call", calls)])
    )
    part: dict[str, Any] = {kind: draw(strategy)}
    trajectory_id = draw(ids)
    return Action(
        **part,
        resources=ResourceVector(
            cpu_milli=draw(st.integers(0, 1000 * low)),
            memory_bytes=draw(st.integers(1, 2**40)),
            quota_tokens=draw(st.integers(0, 2**40)),
        ),
        elasticity=elasticity,
        trajectory_id=trajectory_id,
        last_of_trajectory=trajectory_id is not None and draw(st.booleans()),
        timeout_s=draw(st.floats(0.001, 1000)),
        queue_timeout_s=draw(st.floats(0.001, 1000)),
        environment_key=draw(ids),
        idempotency_key=draw(ids),
        reward_rule=draw(st.none() | st.builds(RewardRule, last_line=ids)),
    )


@given(actions())
def test_an_action_comes_back_as_it_was(action: Action) -> None:
    assert decode_action(encode_action(action)) == action


@given(actions())
def test_json_fields_make_the_same_action(action: Action) -> None:
    assert action_from_fields(msgspec.to_builtins(action)) == action


results = st.builds(
    ActionResult,
    action_id=names,
    outcome=st.sampled_from(list(Outcome)),
    error=st.none() | texts,
    exit_code=st.none() | st.integers(0, 255),
    stdout=texts,
    stderr_truncated=st.booleans(),
    value=json_values,
    reward=st.none() | st.floats(0, 1),
    timings=st.builds(
        Timings,
        submitted_s=st.floats(0, 1e10),
        started_s=st.none() | st.floats(0, 1e10),
        finished_s=st.floats(0, 1e10),
    ),
    usage=st.builds(Usage, cpu_s=st.floats(0, 1e6), cores=st.integers(0, 99)),
    attempt=st.integers(0, 9),
)


@given(results)
def test_a_result_comes_back_as_it_was(result: ActionResult) -> None:
    assert decode_result(encode_result(result)) == result


def test_a_result_in_json_has_the_derived_times() -> None:
    timings = Timings(submitted_s=10, started_s=12, finished_s=15)
    shown = result_to_builtins(
        ActionResult(action_id="a", outcome=Outcome.SUCCEEDED, timings=timings)
    )
    assert shown["timings"]["queue_wait_s"] == 2
    assert shown["timings"]["run_s"] == 3
    assert shown["timings"]["act_s"] == 5


def test_a_payload_above_the_limit_is_refused_with_both_sizes() -> None:
    half = "x" * (MAX_PAYLOAD_BYTES // 2)
    action = Action(command=Command(argv=("cat",), stdin=half, files={"big": half}))
    with pytest.raises(PayloadTooLargeError) as caught:
        encode_action(action)
    assert str(MAX_PAYLOAD_BYTES) in str(caught.value)
    assert "command=" in str(caught.value)


def test_a_body_that_is_not_json_is_refused() -> None:
    action = Action(api_call=ApiCall(provider="judge", path="chat", body={"when": object()}))
    with pytest.raises(InvalidActionError, match=r"api_call\.body"):
        encode_action(action)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"command": {"argv": ["x"]}, "timeout": 5}, ("timeout=5", "timeout_s")),
        ({"command": {"argv": ["x"], "envs": {}}}, ("command.envs", "stdin")),
        ({"command": {"argv": ["x"]}, "resources": {"cpu": 1}}, ("resources.cpu=1", "cpu_milli")),
        ({"command": {"argv": "x"}}, ("command.argv='x'",)),
        ({"command": {"argv": [3]}}, ("command.argv[0]=3",)),
        ({"command": {"argv": ["x"]}, "timeout_s": "5"}, ("timeout_s='5'",)),
        ({"command": {"argv": ["x"]}, "timeout_s": float("nan")}, ("timeout_s=nan",)),
        ({}, ("exactly one",)),
    ],
)
def test_wrong_fields_are_refused_by_name(fields: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidActionError) as caught:
        action_from_fields(fields)
    for part in words:
        assert part in str(caught.value)


def test_bytes_of_another_version_are_told_apart() -> None:
    body = encode_action(Action(command=Command(argv=("x",))))
    with pytest.raises(WireVersionError, match="one version"):
        decode_action(b"\x02" + body[1:])
    with pytest.raises(WireVersionError):
        decode_result(b"")
