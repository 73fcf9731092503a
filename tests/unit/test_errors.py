"""The error tree: messages say what failed, the value and the mend; all survives a pickle."""

import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.domain import errors
from tangram_workers.domain.errors import InvalidActionError, PayloadTooLargeError, TangramError
from tangram_workers.domain.result import ActionResult, Outcome, Timings

RESULT = ActionResult(
    action_id="a1",
    outcome=Outcome.FAILED,
    error="exit code 3.",
    exit_code=3,
    timings=Timings(submitted_s=1.0, started_s=2.0, finished_s=3.0),
)


def all_errors() -> list[type[TangramError]]:
    found, waiting = [], [TangramError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == errors.__name__:
            found.append(kind)
            waiting += kind.__subclasses__()
    return sorted(found, key=lambda kind: kind.__name__)


def example(kind: type[TangramError]) -> TangramError:
    if issubclass(kind, InvalidActionError):
        return kind("timeout_s", -1, "give more.")
    if issubclass(kind, errors.ActionError):
        return kind("Action a1: exit code 3.", RESULT)
    return kind("It failed. Mend it.")


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_survives_a_pickle(kind):
    error = example(kind)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_says_what_it_means(kind):
    assert kind.__doc__.strip().endswith(".")


def test_the_message_names_field_value_and_mend():
    assert str(InvalidActionError("timeout_s", -1, "give more.")) == (
        "timeout_s=-1 is not valid: give more."
    )


def test_a_long_value_is_cut_in_the_message_and_kept_whole_in_the_error():
    error = InvalidActionError("command.stdin", "x" * 10_000, "give less.")
    assert len(str(error)) < 200
    assert len(error.value) == 10_000  # type: ignore[arg-type]  # a text, made above


def test_a_value_that_cannot_be_pickled_is_kept_as_it_was_shown():
    error = InvalidActionError("command.argv", threading.Lock(), "give texts.")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert "lock" in copy.value


def test_a_value_whose_repr_fails_is_shown_by_its_type():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    assert "<Broken>" in str(InvalidActionError("command.argv", Broken(), "give texts."))


def test_an_integer_of_too_many_digits_to_print_is_shown_by_its_type():
    assert "<int>" in str(InvalidActionError("timeout_s", 10**5000, "give less."))


def test_a_payload_error_is_an_input_error_and_a_value_error():
    error = PayloadTooLargeError("command", "5 bytes", "split it.")
    assert isinstance(error, errors.InputError)
    assert isinstance(error, ValueError)


def test_timeouts_can_be_caught_as_the_standard_library_names_them():
    assert issubclass(errors.ActionTimedOutError, TimeoutError)
    assert issubclass(errors.BrokerUnavailableError, ConnectionError)


@given(
    value=st.one_of(
        st.none(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text())
    )
)
def test_any_value_gives_a_short_encodable_message(value):
    message = str(InvalidActionError("field", value, "mend it."))
    assert message.startswith("field=")
    assert message.endswith("is not valid: mend it.")
    assert len(message) < 200
    message.encode()
