"""Figures of the broker's benchmark: pure."""

from __future__ import annotations

import math

import pytest

from tangram_workers.bench.broker.figures import (
    all_met,
    is_met,
    median_ratio,
    percentile,
    ratio,
    rounded,
)
from tangram_workers.bench.broker.report import TARGETS, BrokerReport, SideRecord


def side(speed: float) -> SideRecord:
    """A side that is so many times as fast as the slowest."""
    return SideRecord(
        throughput=(100 * speed, 300 * speed, 200 * speed),
        submit_rate=(10 * speed, 10 * speed, 10 * speed),
        worker_cpu_s=(0.004 / speed, 0.004 / speed, 0.004 / speed),
        latency_s=tuple(0.001 * number / speed for number in range(1, 101)),
        memory_per_message_bytes=1000.0,
    )


def report(stock: SideRecord, ours: SideRecord) -> BrokerReport:
    return BrokerReport(pool="threads", concurrency=8, size=1000, stock=stock, ours=ours)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [0.4, 0.1, 0.3, 0.2]
    assert [percentile(values, share) for share in (0.25, 0.5, 0.51, 1.0)] == [0.1, 0.2, 0.3, 0.4]


def test_the_ratio_of_rounds_is_taken_round_by_round() -> None:
    # The machine was twice as slow in the second round; both sides bore it.
    assert median_ratio([300.0, 150.0, 310.0], [100.0, 50.0, 100.0]) == 3.0


def test_a_round_without_a_ratio_leaves_none() -> None:
    assert ratio(1.0, 0.0) is None
    assert median_ratio([1.0, 1.0], [1.0, 0.0]) is None
    assert median_ratio([], []) is None


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (1.3, (">=", 1.3), True),
        (1.29, (">=", 1.3), False),
        (0.9, ("<=", 0.9), True),
        (0.91, ("<=", 0.9), False),
        (None, ("<=", 0.9), False),
        (math.nan, (">=", 0.0), False),
    ],
)
def test_a_target_is_met_or_not(value: float | None, target: tuple[str, float], met: bool) -> None:
    assert is_met(value, target) is met


def test_an_unknown_comparison_is_an_error_and_not_a_pass() -> None:
    with pytest.raises(ValueError, match="not with '>'"):
        is_met(1.0, (">", 0.5))


def test_one_missing_figure_misses_all() -> None:
    assert all_met({"a": 1.0}, {"a": (">=", 1.0)})
    assert not all_met({}, {"a": (">=", 1.0)})


def test_a_faster_side_meets_every_target_and_a_like_one_does_not() -> None:
    fast, like = report(side(1.0), side(2.0)), report(side(1.0), side(1.0))
    assert fast.figures()["plain_celery_throughput_ratio"] == 2.0
    assert fast.figures()["latency_p50_ratio"] == 0.5
    assert fast.is_met
    assert not like.is_met


def test_the_json_holds_every_target_with_its_figure() -> None:
    fields = report(side(1.0), side(2.0)).to_json()
    assert fields["met"] is True
    assert set(TARGETS) <= set(fields)
    assert fields["targets"] == {name: list(target) for name, target in TARGETS.items()}
    assert fields["ours"]["latency_p50_ms"] == 25.0


def test_figures_are_shown_with_six_digits() -> None:
    assert rounded({"a": [1 / 3, 2], "b": "text"}) == {"a": [0.333333, 2], "b": "text"}
