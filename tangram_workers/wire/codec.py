"""Encoding of actions and results: a version byte, then MessagePack of the domain's own fields."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tangram_workers.domain.action import MAX_PAYLOAD_BYTES, Action
from tangram_workers.domain.errors import InvalidActionError, PayloadTooLargeError, TangramError
from tangram_workers.domain.result import ActionResult

VERSION = b"\x01"

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_action_decoder = msgspec.msgpack.Decoder(Action)
_result_decoder = msgspec.msgpack.Decoder(ActionResult)


class WireVersionError(TangramError):
    """Bytes were written by a version of this package that this one cannot read."""


def encode_action(action: Action) -> bytes:
    """Return an action's bytes.

    Raises:
        InvalidActionError: If a value cannot be encoded (an object in an API call's body).
        PayloadTooLargeError: If they are above MAX_PAYLOAD_BYTES.
    """
    try:
        body = VERSION + _encoder.encode(action)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidActionError(
            "api_call.body",
            action.api_call and action.api_call.body,
            f"it cannot be encoded ({error}); give JSON values only.",
        ) from None
    if len(body) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLargeError(
            str(action.kind),
            f"{len(body)} bytes",
            f"an action's encoded form may have {MAX_PAYLOAD_BYTES} bytes; "
            "split it, or let the command read its data from a file.",
        )
    return body


def decode_action(body: bytes) -> Action:
    """Return the action in `body`, as `encode_action` wrote it."""
    return _action_decoder.decode(_unversioned(body))


def encode_result(result: ActionResult) -> bytes:
    """Return a result's bytes."""
    return VERSION + _encoder.encode(result)


def decode_result(body: bytes) -> ActionResult:
    """Return the result in `body`, as `encode_result` or a store script wrote it."""
    return _result_decoder.decode(_unversioned(body))


def result_to_builtins(result: ActionResult) -> dict[str, Any]:
    """Return a result as JSON values, its derived figures included."""
    fields: dict[str, Any] = msgspec.to_builtins(result)
    timings = result.timings
    fields["timings"] |= {
        "queue_wait_s": timings.queue_wait_s,
        "run_s": timings.run_s,
        "act_s": timings.act_s,
    }
    return fields


def action_from_fields(fields: Mapping[str, Any]) -> Action:
    """Build an action from JSON values, as a plain Celery call or an HTTP body gives them.

    Raises:
        InvalidActionError: If a field is unknown or holds a value of the wrong kind.
    """
    _refuse_unknown_fields(Action, fields, "")
    try:
        return msgspec.convert(fields, Action)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidActionError):
            raise error.__cause__ from None
        message, _, path = str(error).partition(" - at `$.")
        field = path.rstrip("`") or "action"
        raise InvalidActionError(
            field, _value_at(fields, field), f"{message.rstrip('.').lower()}."
        ) from None


def _unversioned(body: bytes) -> bytes:
    if body[:1] != VERSION:
        raise WireVersionError(
            f"Bytes of wire version {body[:1].hex() or 'none'} cannot be read by this version. "
            "Run one version of tangram-workers on every client and worker."
        )
    return body[1:]


def _refuse_unknown_fields(owner: Any, value: object, path: str) -> None:
    """Refuse misspelt names at every level; the decoder itself would ignore them."""
    if not isinstance(value, Mapping):
        return
    hints = typing.get_type_hints(owner)
    for name, item in value.items():
        if name not in hints:
            raise InvalidActionError(
                f"{path}{name}", item, f"no such field; there are: {', '.join(sorted(hints))}."
            )
        hint = hints[name]
        choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        for choice in choices:
            if dataclasses.is_dataclass(choice):
                _refuse_unknown_fields(choice, item, f"{path}{name}.")


def _value_at(fields: Mapping[str, Any], path: str) -> object:
    value: object = fields
    for part in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return value
    return value
