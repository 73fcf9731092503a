"""A step over time, in equal intervals. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tangram_workers.bench.demo.records import StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """What was going on in each interval since the step began."""

    #: Bounds of the intervals in seconds, one more than there are intervals.
    edges_s: tuple[float, ...]
    #: Cores that ran an action, on average over each interval.
    busy_cores: tuple[float, ...]
    #: Actions that waited, on average over each interval.
    waiting: tuple[float, ...]
    #: Trajectories that had ended by each bound.
    ended: tuple[int, ...]


def make_timeline(step: StepRecord, *, until_s: float, intervals: int) -> Timeline:
    """Return a step's timeline.

    Args:
        step: What was measured.
        until_s: End of the last interval, in seconds since the step began; above 0.
        intervals: How many; at least 1.
    """
    width_s = until_s / intervals
    edges_s = tuple(number * width_s for number in range(intervals + 1))
    running = (
        (action.started_s, action.finished_s, float(action.cores))
        for action in step.actions
        if action.started_s is not None
    )
    waiting = (
        (action.submitted_s, action.submitted_s + action.queue_wait_s, 1.0)
        for action in step.actions
    )
    ends_s: dict[str, float] = {}
    for action in step.actions:
        ends_s[action.sample_id] = max(ends_s.get(action.sample_id, 0.0), action.finished_s)
    return Timeline(
        edges_s=edges_s,
        busy_cores=_means(running, width_s, intervals),
        waiting=_means(waiting, width_s, intervals),
        ended=tuple(sum(end_s <= edge_s for end_s in ends_s.values()) for edge_s in edges_s),
    )


def _means(
    spans: Iterable[tuple[float, float, float]], width_s: float, intervals: int
) -> tuple[float, ...]:
    """Return for each interval the mean of the heights of the spans (begin, end, height) in it."""
    totals = [0.0] * intervals
    for begin_s, end_s, height in spans:
        first = max(0, int(begin_s / width_s))
        last = min(intervals - 1, int(end_s / width_s))
        for number in range(first, last + 1):
            inside_s = min(end_s, (number + 1) * width_s) - max(begin_s, number * width_s)
            totals[number] += height * max(0.0, inside_s)
    return tuple(total / width_s for total in totals)
