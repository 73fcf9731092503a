"""Estimates of durations, and ranges of cores."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.domain.action import Action, Command
from tangram_workers.domain.resources import Elasticity, ResourceVector, SpeedupCurve
from tangram_workers.scheduling.estimator import (
    COLD_PRIOR_S,
    GLOBAL_KEY,
    Estimate,
    expected_run_s,
    fallback_keys,
)
from tangram_workers.scheduling.grants import core_range

durations = st.floats(1e-3, 1e5)


def observed(*durations_s: float) -> Estimate:
    estimate = Estimate()
    for duration_s in durations_s:
        estimate = estimate.observe(duration_s)
    return estimate


def test_equal_durations_are_expected_again() -> None:
    assert observed(2.5, 2.5, 2.5).expected_s == pytest.approx(2.5)


@given(st.lists(durations, min_size=2, max_size=50))
def test_the_mean_lies_between_what_was_seen(seen_s: list[float]) -> None:
    estimate = observed(*seen_s)
    assert estimate.observations == len(seen_s)
    assert math.log(min(seen_s)) - 1e-9 <= estimate.mean_log <= math.log(max(seen_s)) + 1e-9
    assert estimate.variance_log >= 0


@given(st.lists(durations, min_size=0, max_size=20), durations)
def test_old_work_is_forgotten(before_s: list[float], now_s: float) -> None:
    estimate = observed(*before_s, *[now_s] * 60)
    assert estimate.mean_log == pytest.approx(math.log(now_s), abs=0.01)


def test_a_duration_of_nothing_is_no_trouble() -> None:
    assert observed(0.0, 0.0).expected_s > 0


def test_a_fleet_that_has_seen_nothing_has_a_prior() -> None:
    assert expected_run_s("env|command", {}) == COLD_PRIOR_S


def test_the_most_precise_key_that_is_known_well_enough_counts() -> None:
    assert fallback_keys("env|command") == ("env|command", "*|command", GLOBAL_KEY)
    estimates = {GLOBAL_KEY: observed(9, 9)}
    assert expected_run_s("env|command", estimates) == pytest.approx(9)
    estimates["*|command"] = observed(5, 5)
    assert expected_run_s("env|command", estimates) == pytest.approx(5)
    estimates["env|command"] = observed(1)
    assert expected_run_s("env|command", estimates) == pytest.approx(5)
    estimates["env|command"] = observed(1, 1)
    assert expected_run_s("env|command", estimates) == pytest.approx(1)


def elastic(minimum: int, maximum: int, **curve: float) -> Action:
    return Action(
        command=Command(argv=("true",)),
        elasticity=Elasticity(min_units=minimum, max_units=maximum, speedup=SpeedupCurve(**curve)),
    )


def test_cores_beyond_the_useful_maximum_are_not_asked_for() -> None:
    assert core_range(elastic(1, 64, exponent=1.0, floor=0.25)) == (1, 4)
    assert core_range(elastic(1, 3, exponent=1.0, floor=0.25)) == (1, 3)


def test_the_minimum_is_asked_for_even_where_it_is_of_no_use() -> None:
    assert core_range(elastic(6, 8, exponent=1.0, floor=0.5)) == (6, 6)


def test_whole_cores_cover_the_vector() -> None:
    action = Action(
        command=Command(argv=("true",)),
        resources=ResourceVector(cpu_milli=2500),
        elasticity=Elasticity(min_units=1, max_units=4),
    )
    assert core_range(action)[0] == 3
    idle = Action(command=Command(argv=("true",)), resources=ResourceVector(cpu_milli=0))
    assert core_range(idle) == (1, 1)


@given(
    minimum=st.integers(1, 64),
    extra=st.integers(0, 64),
    exponent=st.just(0.0) | st.floats(0.05, 1),
    floor=st.floats(0, 1),
)
def test_the_range_is_always_within_what_was_asked(
    minimum: int, extra: int, exponent: float, floor: float
) -> None:
    action = elastic(minimum, minimum + extra, exponent=exponent, floor=floor)
    fewest, most = core_range(action)
    assert minimum == fewest <= most <= minimum + extra
    curve = action.elasticity.speedup
    if most > fewest:
        # Every core of the range shortens the run, and none beyond it would.
        assert curve.run_time_fraction(most) < curve.run_time_fraction(most - 1)
        beyond = curve.run_time_fraction(minimum + extra)
        assert beyond == pytest.approx(curve.run_time_fraction(most), rel=1e-6)
