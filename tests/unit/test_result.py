"""Results, timings and rewards."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.domain import errors
from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.domain.result import ActionResult, Outcome, Timings
from tangram_workers.domain.reward import RewardRule, command_reward

TIMINGS = Timings(submitted_s=100.0, started_s=103.0, finished_s=110.0)
seconds = st.floats(0, 1e10)


def result(outcome: Outcome, **fields) -> ActionResult:
    return ActionResult(action_id="a1", outcome=outcome, timings=TIMINGS, **fields)


def test_timings_split_completion_time_into_wait_and_run():
    assert (TIMINGS.queue_wait_s, TIMINGS.run_s, TIMINGS.act_s) == (3.0, 7.0, 10.0)


def test_an_action_that_never_started_only_waited():
    timings = Timings(submitted_s=100.0, finished_s=110.0)
    assert (timings.queue_wait_s, timings.run_s, timings.act_s) == (10.0, 0.0, 10.0)


@given(submitted=seconds, started=st.none() | seconds, finished=seconds)
def test_no_time_is_negative_even_if_a_clock_was_set_back(submitted, started, finished):
    timings = Timings(submitted_s=submitted, started_s=started, finished_s=finished)
    assert min(timings.queue_wait_s, timings.run_s, timings.act_s) >= 0.0


def test_only_success_is_success():
    assert [each for each in Outcome if result(each).is_success] == [Outcome.SUCCEEDED]


def test_a_success_raises_nothing_and_gives_itself():
    success = result(Outcome.SUCCEEDED)
    assert success.raise_for_outcome() is success


ERRORS = {
    Outcome.FAILED: errors.ActionFailedError,
    Outcome.TIMED_OUT: errors.ActionTimedOutError,
    Outcome.OOM: errors.ActionOutOfMemoryError,
    Outcome.CANCELLED: errors.ActionCancelledError,
    Outcome.EXPIRED: errors.ActionExpiredError,
    Outcome.INFRASTRUCTURE_ERROR: errors.InfrastructureError,
}


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.SUCCEEDED])
def test_every_other_outcome_raises_an_error_of_its_own_with_the_result(outcome):
    ended = result(outcome, error="why it ended.")
    with pytest.raises(errors.ActionError) as caught:
        ended.raise_for_outcome()
    assert type(caught.value) is ERRORS[outcome]
    assert caught.value.result is ended
    assert str(caught.value) == "Action a1: why it ended."


def test_an_outcome_without_a_reason_is_still_named():
    with pytest.raises(errors.ActionError, match="Action a1: it ended as cancelled"):
        result(Outcome.CANCELLED).raise_for_outcome()


def test_a_result_survives_a_pickle():
    original = result(Outcome.FAILED, error="e", value={"x": [1]}, stdout="\x00é")
    assert pickle.loads(pickle.dumps(original)) == original


@pytest.mark.parametrize(
    ("exit_code", "stdout", "reward"),
    [
        (0, "done\n", 1.0),
        (0, "x\ndone\n", 1.0),
        (0, "done", 1.0),
        (0, "done\n\n\n", 1.0),
        (0, "done\nmore\n", 0.0),
        (0, "", 0.0),
        (0, "not done\n", 0.0),
        (0, " done\n", 0.0),
        (1, "done\n", 0.0),
        (None, "done\n", 0.0),
    ],
)
def test_a_last_line_must_be_the_last_and_the_exit_clean(exit_code, stdout, reward):
    assert command_reward(RewardRule(last_line="done"), exit_code, stdout) == reward


@pytest.mark.parametrize(("exit_code", "reward"), [(0, 1.0), (1, 0.0), (137, 0.0), (None, 0.0)])
def test_without_a_last_line_the_exit_code_alone_counts(exit_code, reward):
    assert command_reward(RewardRule(), exit_code, "anything") == reward


@given(
    line=st.text(min_size=1).filter(lambda text: "\n" not in text and "\0" not in text),
    before=st.text(),
)
def test_any_line_that_can_be_asked_for_can_be_met(line, before):
    try:
        rule = RewardRule(last_line=line)
    except InvalidActionError:
        return
    assert command_reward(rule, 0, f"{before}\n{line}\n") == 1.0


@pytest.mark.parametrize(
    "value", ["", "two\nlines", "a\0b", "\ud800", "x" * 1001, 5, True, b"done"]
)
def test_a_last_line_that_could_never_match_is_refused(value):
    with pytest.raises(InvalidActionError) as caught:
        RewardRule(last_line=value)
    assert caught.value.field == "reward_rule.last_line"
