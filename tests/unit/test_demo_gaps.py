from __future__ import annotations

import csv
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.bench.demo.gaps import (
    RECORDED_BUSY_SHARES,
    draw_gaps_s,
    gap_factor,
    quantile_s,
    recorded_gap_quantiles_s,
)
from tangram_workers.bench.demo.trajectories import LOOP_TIMEOUT_S

TRACES = resources.files("tangram_workers.bench.demo") / "traces"
probabilities = st.floats(0, 1)


def test_the_table_is_the_recorded_one() -> None:
    table = recorded_gap_quantiles_s()
    assert len(table) == 201
    assert table[0] == 1.411
    assert table[100] == 2.759
    assert table[-1] == 127.79
    assert list(table) == sorted(table)


def test_the_data_names_its_source_and_licence() -> None:
    sources = (TRACES / "SOURCES.md").read_text(encoding="utf-8")
    for part in ("eunomia-bpf/agentcgroup", "5af9e7b8f37a93513206c331c7ec0ff149e89f27", "GPL-2.0"):
        assert part in sources


def test_the_recorded_shares_are_those_of_the_table() -> None:
    rows = csv.DictReader((TRACES / "tool_busy_shares.csv").read_text().splitlines())
    assert sorted(float(row["mean_share"]) for row in rows) == list(RECORDED_BUSY_SHARES)


@given(probabilities, probabilities)
def test_quantiles_rise_with_the_probability(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 < quantile_s(0) <= quantile_s(low) <= quantile_s(high) <= quantile_s(1)


@given(st.integers(0, 200))
def test_quantiles_meet_the_table(place: int) -> None:
    assert quantile_s(place / 200) == pytest.approx(recorded_gap_quantiles_s()[place], rel=1e-6)


@given(st.text(max_size=20), st.integers(), st.integers(0, 5))
def test_draws_are_deterministic_and_of_the_recorded_range(
    sample_id: str, seed: int, count: int
) -> None:
    gaps_s = draw_gaps_s(sample_id, seed=seed, count=count)
    assert gaps_s == draw_gaps_s(sample_id, seed=seed, count=count)
    assert len(gaps_s) == count
    assert all(quantile_s(0) <= gap_s <= quantile_s(1) for gap_s in gaps_s)


def test_samples_and_seeds_draw_differently() -> None:
    draws = {draw_gaps_s(name, seed=seed, count=3) for name in ("a", "b") for seed in (0, 1)}
    assert len(draws) == 4


def test_many_draws_have_the_recorded_median() -> None:
    drawn = sorted(draw_gaps_s("a", seed=0, count=4001))
    assert drawn[2000] == pytest.approx(2.759, rel=0.05)


@given(
    st.lists(st.lists(st.floats(0.1, 200), min_size=1, max_size=4), min_size=1, max_size=30),
    st.floats(0.001, 10),
    st.integers(0, 30),
    st.floats(0.01, 0.99),
)
def test_the_factor_gives_the_share_that_was_asked_for(
    recorded: list[list[float]], busy_s: float, loops: int, share: float
) -> None:
    factor = gap_factor(recorded, measured_busy_s=busy_s, loops=loops, busy_share=share)
    total_busy_s = len(recorded) * busy_s + loops * LOOP_TIMEOUT_S
    total_gaps_s = sum(factor * gap_s for gaps_s in recorded for gap_s in gaps_s)
    assert total_busy_s / (total_busy_s + total_gaps_s) == pytest.approx(share)
