"""Waits that stand for the LLM: drawn from recorded ones, and played faster."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from functools import cache
from importlib import resources

from tangram_workers.bench.demo.trajectories import LOOP_TIMEOUT_S

#: Bounds of the recorded proportion of tool time in a trajectory's life (traces/SOURCES.md).
RECORDED_BUSY_SHARES = (0.175, 0.344)
_TABLE = "traces/llm_gap_quantiles.csv"


@cache
def recorded_gap_quantiles_s() -> tuple[float, ...]:
    """Return the recorded gaps at evenly spaced probabilities from 0 to 1, in seconds."""
    text = resources.files(__package__).joinpath(_TABLE).read_text(encoding="utf-8")
    return tuple(float(row["gap_s"]) for row in csv.DictReader(text.splitlines()))


def quantile_s(probability: float) -> float:
    """Return the gap that so much of the recorded ones stay below, in seconds.

    Args:
        probability: From 0 to 1; between two entries of the table it runs straight.
    """
    table = recorded_gap_quantiles_s()
    place = probability * (len(table) - 1)
    below = min(int(place), len(table) - 2)
    return table[below] + (place - below) * (table[below + 1] - table[below])


def draw_gaps_s(sample_id: str, *, seed: int, count: int) -> tuple[float, ...]:
    """Return a trajectory's gaps as recorded, in seconds; equal arguments give equal gaps.

    Args:
        sample_id: Whose trajectory. Its draws do not depend on how many others there are.
        seed: Of the whole run.
        count: How many.
    """
    rng = random.Random(f"{seed}/{sample_id}")  # noqa: S311 - waits, not secrets
    return tuple(quantile_s(rng.random()) for _ in range(count))


def gap_factor(
    recorded_gaps_s: Sequence[Sequence[float]],
    *,
    measured_busy_s: float,
    loops: int,
    busy_share: float,
) -> float:
    """Return the factor on all gaps under which tools are busy for a share of the trajectories.

    The share is that of all trajectories' lives together, were no action ever to wait.

    Args:
        recorded_gaps_s: Each trajectory's gaps.
        measured_busy_s: Mean tool time of a trajectory without an endless loop.
        loops: How many of the trajectories have one.
        busy_share: Wanted share, above 0 and below 1.
    """
    busy_s = len(recorded_gaps_s) * measured_busy_s + loops * LOOP_TIMEOUT_S
    return busy_s * (1 / busy_share - 1) / sum(map(sum, recorded_gaps_s))
