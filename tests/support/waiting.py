"""Wait for facts, not for seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(fact: Callable[[], T], *, timeout_s: float = 30.0, what: str = "") -> T:
    """Return the first true value of `fact`; fail with the last value seen after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or fact} (last seen: {value!r})")
        time.sleep(0.02)
