"""Ratios, and whether they are good enough. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

#: Name of a figure -> (how it must compare, bound).
Targets = Mapping[str, tuple[str, float]]


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the least value that a fraction of all do not exceed.

    Args:
        values: In any order, at least one.
        fraction: Above 0 and at most 1.
    """
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


def ratio(above: float, below: float) -> float | None:
    """Return above / below; None where that says nothing."""
    return above / below if below > 0 else None


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float | None:
    """Return the median of the rounds' ratios; None if a round has none.

    Args:
        above: One value for each round.
        below: The other side's, of the same rounds.
    """
    ratios = [ratio(one, other) for one, other in zip(above, below, strict=True)]
    known = [each for each in ratios if each is not None]
    return statistics.median(known) if known and len(known) == len(ratios) else None


def is_met(value: float | None, target: tuple[str, float]) -> bool:
    """Return whether a figure is good enough; one that is missing never is.

    Raises:
        ValueError: If the target compares in an unknown way.
    """
    operator, bound = target
    if operator not in (">=", "<="):
        raise ValueError(f"a target compares with >= or <=, not with {operator!r}")
    if value is None or math.isnan(value):
        return False
    return value >= bound if operator == ">=" else value <= bound


def all_met(values: Mapping[str, float | None], targets: Targets) -> bool:
    """Return whether every target's figure is good enough."""
    return all(is_met(values.get(name), target) for name, target in targets.items())


def rounded(value: Any) -> Any:
    """Leave out digits that no clock here resolves, in nested lists and dictionaries too."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return value
