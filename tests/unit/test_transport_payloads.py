"""Messages on their way through the transport: what they ask for, and their bytes."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.broker.transport.payloads import (
    decode_message,
    encode_message,
    mark_delivered,
    outgoing_message,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def message(headers: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    return {"body": "[]", "headers": headers or {}, "properties": properties}


@given(JSON, JSON)
def test_a_message_is_read_as_it_was_written(header: Any, value: Any) -> None:
    written = message({"h": header}, p=value)
    # Compared as text, where one NaN is like the other.
    assert repr(decode_message(encode_message(written))) == repr(written)


def test_what_json_has_no_form_for_is_read_as_it_was_written() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    written = message({"id": uuid.UUID(int=7), "when": moment, "raw": b"\xff\x00"})
    assert decode_message(encode_message(written)) == written


@pytest.mark.parametrize("payload", [b"", b"[]", b"3", b"{}", b"\xff", b'{"properties"'])
def test_what_is_no_message_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode_message(payload)


@pytest.mark.parametrize(
    ("priority", "score", "step"),
    [(None, None, 0), (0, None, 0), (9, None, 9), (-1, None, -1), (0.0, 0.0, 0), (1.5e9, 1.5e9, 0)],
)
def test_a_whole_number_is_a_step_and_a_float_the_score(
    priority: Any, score: float | None, step: int
) -> None:
    outgoing = outgoing_message("q", message(priority=priority))
    assert (outgoing.score, outgoing.step) == (score, step)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"priority": float("nan")}, "priority=nan"),
        ({"priority": float("inf")}, "finite"),
        ({"priority": "high"}, "priority='high'"),
        ({"units": -1}, "units=-1"),
        ({"units": True}, "units=True"),
        ({"units": 1.5}, "units=1.5"),
        ({"node": ""}, "node=''"),
        ({"node": 3}, "node=3"),
    ],
)
def test_what_cannot_be_used_is_refused_before_it_is_queued(
    properties: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        outgoing_message("q", message(**properties))


@pytest.mark.parametrize(
    ("eta", "due_s"),
    [
        (None, None),
        ("2026-01-02T03:04:05+00:00", 1767323045.0),
        ("2026-01-02T04:04:05+01:00", 1767323045.0),
        ("2026-01-02T03:04:05.5", 1767323045.5),  # without a zone it is UTC, as Celery has it
        ("soon", None),
    ],
)
def test_an_eta_is_when_it_is_due(eta: str | None, due_s: float | None) -> None:
    assert outgoing_message("q", message({"eta": eta})).due_s == due_s


def test_the_first_delivery_says_nothing_of_others() -> None:
    taken = message({"id": "t", "eta": "2026-01-02T03:04:05+00:00"}, delivery_tag="old")
    mark_delivered(taken, "new", 1)
    assert taken["properties"] == {"delivery_tag": "new"}
    assert taken["headers"] == {"id": "t", "eta": None}


def test_a_later_delivery_says_so() -> None:
    taken = message({"id": "t"}, delivery_tag="old", delivery_info={"routing_key": "q"})
    mark_delivered(taken, "new", 2)
    assert taken["headers"]["redelivered"] is True
    assert taken["properties"]["delivery_info"] == {"routing_key": "q", "redelivered": True}
