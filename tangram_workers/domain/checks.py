"""Checks of single values, so that every field is refused in the same words.

Each returns the value as the plain built-in type: numpy's numbers and texts are subclasses of
Python's own, and the encoding takes only the latter.
"""

from __future__ import annotations

import math

from tangram_workers.domain.errors import InvalidActionError


def require_int(field: str, value: object, *, minimum: int, maximum: int) -> int:
    """Refuse what is not an integer from `minimum` to `maximum` (True is not an integer here)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidActionError(field, value, "give a whole number.")
    if not minimum <= value <= maximum:
        raise InvalidActionError(field, value, f"give a whole number from {minimum} to {maximum}.")
    return int(value)


def require_finite(field: str, value: object, *, minimum: float, maximum: float) -> float:
    """Refuse what is not a finite number from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidActionError(field, value, "give a finite number.")
    # Only floats can be infinite, and an integer of 400 digits does not fit math.isfinite().
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidActionError(field, value, "give a finite number.")
    if not minimum <= value <= maximum:
        raise InvalidActionError(field, value, f"give a number from {minimum:g} to {maximum:g}.")
    return float(value)


def require_text(
    field: str, value: object, *, maximum_length: int, allow_empty: bool = False
) -> str:
    """Refuse what is not encodable text without NUL characters."""
    if not isinstance(value, str):
        raise InvalidActionError(field, value, "give text.")
    if not value and not allow_empty:
        raise InvalidActionError(field, value, "it is empty; give some text or leave it out.")
    if len(value) > maximum_length:
        raise InvalidActionError(
            field, value, f"it has {len(value)} characters; give at most {maximum_length}."
        )
    if "\0" in value:
        raise InvalidActionError(field, value, "it holds a NUL character; remove it.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidActionError(
            field, value, "it is not valid Unicode; encode it first."
        ) from None
    return str.__str__(value)  # str() would name the member of a text-valued enum


def require_bool(field: str, value: object) -> None:
    """Refuse what is not True or False."""
    if not isinstance(value, bool):
        raise InvalidActionError(field, value, "give True or False.")
