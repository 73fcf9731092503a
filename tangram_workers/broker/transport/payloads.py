"""Messages as kombu has them, as bytes in Redis and as the queues take them."""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec
from kombu.utils.json import dumps, loads

from tangram_workers.stores.redis.queues import OutgoingMessage

#: What kombu's form marks a value with that JSON has none for; its reader is slow, and needed then.
_MARK = b'"__type__"'

_decode = msgspec.json.Decoder().decode

Message = dict[str, Any]


def encode_message(message: Message) -> bytes:
    """Return a message's bytes, in kombu's own form."""
    return dumps(message).encode()


def decode_message(payload: bytes) -> Message:
    """Return the message in `payload`.

    Raises:
        ValueError: If it is none.
    """
    try:
        message = loads(payload) if _MARK in payload else _decode(payload)
    except msgspec.DecodeError:
        message = loads(payload)  # NaN and Infinity, which strict JSON does not have
    if not isinstance(message, dict) or "properties" not in message:
        raise ValueError("it has no properties")
    return message


def outgoing_message(queue: str, message: Message) -> OutgoingMessage:
    """Return a message as the queues take it.

    Raises:
        ValueError: If its `priority`, `units` or `node` cannot be used; it says why.
    """
    properties = message["properties"]
    score, step = _order(properties.get("priority"))
    return OutgoingMessage(
        queue=queue,
        payload=encode_message(message),
        score=score,
        step=step,
        units=_units(properties.get("units", 1)),
        node=_node(properties.get("node")),
        due_s=_due_s((message.get("headers") or {}).get("eta")),
    )


def _order(priority: object) -> tuple[float | None, int]:
    if priority is None:
        return None, 0
    if isinstance(priority, int):
        return None, priority
    if isinstance(priority, float) and math.isfinite(priority):
        return priority, 0
    raise ValueError(
        f"priority={priority!r} is not valid: give a whole number (a step, 0 first) or a finite "
        "float (the exact score, lower first)."
    )


def _units(units: object) -> int:
    if isinstance(units, int) and not isinstance(units, bool) and units >= 0:
        return units
    raise ValueError(f"units={units!r} is not valid: give a whole number, 0 or more.")


def _node(node: object) -> str | None:
    if node is None or (isinstance(node, str) and node):
        return node
    raise ValueError(f"node={node!r} is not valid: give a node's name, or leave it out.")


def _due_s(eta: object) -> float | None:
    if not isinstance(eta, str):
        return None
    try:
        due = datetime.datetime.fromisoformat(eta)
    except ValueError:
        return None  # Celery itself refuses it, with a better message, when it is delivered
    if due.tzinfo is None:
        due = due.replace(tzinfo=datetime.UTC)
    return due.timestamp()


def mark_delivered(message: Message, tag: str, deliveries: int) -> None:
    """Write into a message what it must know of its delivery.

    Args:
        message: As it was published.
        tag: Unique among all deliveries.
        deliveries: 1 for the first.
    """
    properties = message["properties"]
    properties["delivery_tag"] = tag
    headers = message.get("headers") or {}
    if headers.get("eta") is not None:
        # It is due. With an eta the worker would hold it and look at a clock of its own.
        headers["eta"] = None
    if deliveries > 1:
        headers["redelivered"] = True
        properties.setdefault("delivery_info", {})["redelivered"] = True
