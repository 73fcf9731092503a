from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tangram_workers.bench.demo.figures import mean, percentile, step_figures
from tangram_workers.bench.demo.records import ActionRecord, Policy, StepRecord
from tangram_workers.bench.demo.report import DemoReport
from tangram_workers.bench.demo.samples import SampleKind
from tangram_workers.bench.demo.timeline import make_timeline
from tangram_workers.bench.demo.trajectories import Stage
from tangram_workers.domain.result import Outcome

GOOD = ActionRecord(
    sample_id="P/0.undamaged",
    kind=SampleKind.UNDAMAGED,
    stage=Stage.TEST,
    submitted_s=1.0,
    started_s=2.0,
    finished_s=4.0,
    cores=1,
    cpu_s=1.5,
    outcome=Outcome.SUCCEEDED,
    error=None,
    reward=1.0,
)
BAD = replace(
    GOOD,
    sample_id="P/0.crash",
    kind=SampleKind.CRASH,
    submitted_s=0.0,
    started_s=0.0,
    finished_s=1.0,
    outcome=Outcome.FAILED,
    reward=0.0,
)
LOOP = replace(
    BAD,
    sample_id="P/0.endless_loop",
    kind=SampleKind.ENDLESS_LOOP,
    outcome=Outcome.TIMED_OUT,
)
BROKEN = replace(
    BAD,
    started_s=None,
    finished_s=9.0,
    outcome=Outcome.INFRASTRUCTURE_ERROR,
    error="Its worker was lost.",
    reward=None,
)


def a_step(*actions: ActionRecord, policy: Policy = Policy.FLEET) -> StepRecord:
    return StepRecord(
        policy=policy, cores=2, samples=len(actions), duration_s=10.0, gaps_s=7.0, actions=actions
    )


def a_report(*actions: ActionRecord, loops: int = 1) -> DemoReport:
    return DemoReport(
        problems=1,
        loops=loops,
        seed=5,
        gap_factor=0.02,
        fleet=a_step(*actions),
        static=a_step(*actions, policy=Policy.STATIC),
    )


def test_figures_of_a_step() -> None:
    figures = step_figures(a_step(GOOD, BAD))
    assert figures.undamaged_reward_mean == 1.0
    assert figures.damaged_reward_mean == 0.0
    assert figures.act_mean_s == 2.0
    assert figures.queue_wait_mean_s == 0.5
    assert figures.core_s_reserved == 3.0
    assert figures.core_s_used == 3.0
    assert figures.busy_share == 0.3


def test_a_static_step_reserves_every_core_all_along() -> None:
    assert step_figures(a_step(GOOD, policy=Policy.STATIC)).core_s_reserved == 20.0


def test_a_broken_fleet_is_told_apart_from_a_bad_sample() -> None:
    figures = step_figures(a_step(GOOD, BROKEN))
    assert figures.infrastructure_errors == 1
    assert figures.damaged_reward_mean is None
    assert figures.queue_wait_mean_s == 5.0


def test_only_the_tests_of_a_loop_may_time_out() -> None:
    timeouts = [LOOP, replace(LOOP, stage=Stage.WRITE), replace(GOOD, outcome=Outcome.TIMED_OUT)]
    figures = step_figures(a_step(*timeouts))
    assert (figures.true_timeouts, figures.false_timeouts) == (1, 2)


def test_a_step_without_actions_has_no_means() -> None:
    figures = step_figures(a_step())
    assert figures.act_mean_s is None
    assert figures.act_p99_s is None
    assert figures.busy_share == 0.0


def test_all_is_well() -> None:
    report = a_report(GOOD, BAD, LOOP)
    assert report.faults() == ()
    assert report.is_ok


@pytest.mark.parametrize(
    ("actions", "fault"),
    [
        ([replace(GOOD, reward=0.0), LOOP], "undamaged samples got a mean reward of 0.0000"),
        ([GOOD, replace(BAD, reward=1.0), LOOP], "damaged samples got a mean reward of 0.5000"),
        ([GOOD, BROKEN, LOOP], "the fleet failed 1 actions. The first: Its worker was lost."),
        ([GOOD, BROKEN, LOOP], "1 samples got no reward"),
        ([GOOD, BAD], "0 of 1 endless loops timed out"),
        ([replace(GOOD, outcome=Outcome.TIMED_OUT), LOOP], "1 actions timed out"),
    ],
)
def test_each_fault_is_told_for_both_policies(actions: list[ActionRecord], fault: str) -> None:
    report = a_report(*actions)
    assert not report.is_ok
    for policy in Policy:
        assert any(told.startswith(f"{policy}: ") and fault in told for told in report.faults())


def test_the_json_holds_the_figures_of_both_and_their_ratios() -> None:
    found = json.loads(json.dumps(a_report(GOOD, BAD, LOOP).to_json(), allow_nan=False))
    wanted = {
        "samples", "actions", "undamaged_reward_mean", "damaged_reward_mean", "false_timeouts",
        "true_timeouts", "infrastructure_errors", "act_mean_s", "act_p50_s", "act_p99_s",
        "queue_wait_mean_s", "step_s", "core_s_reserved", "core_s_used", "busy_share",
    }  # fmt: skip
    assert wanted <= found["static"].keys()
    assert wanted | {"problems", "cores", "seed", "ok"} <= found.keys()
    assert found["ratio"] == {"act": 1.0, "step": 1.0, "core_s_reserved": 5.0}
    assert found["ok"] is True


def test_ratios_of_nothing_are_null() -> None:
    assert a_report().to_json()["ratio"] == {"act": None, "step": 1.0, "core_s_reserved": None}


@pytest.mark.parametrize("actions", [(), (GOOD, BAD, LOOP)])
def test_the_table_has_a_row_for_each_figure(actions: tuple[ActionRecord, ...]) -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(a_report(*actions).to_table())
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("ACT p99", "core-seconds reserved", "fleet", "static", "static / fleet"):
        assert part in shown


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.001, 1))
def test_a_percentile_is_a_value_that_enough_do_not_exceed(
    values: list[float], fraction: float
) -> None:
    found = percentile(values, fraction)
    assert found in values
    assert sum(value <= found for value in values) >= fraction * len(values) - 1e-6


def test_percentiles_of_a_hundred() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50.0
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 1.0) == 100.0


def test_a_mean_of_nothing_is_none() -> None:
    assert mean([]) is None
    assert percentile([], 0.5) is None


def test_a_timeline_of_two_actions() -> None:
    timeline = make_timeline(a_step(GOOD, BAD), until_s=5.0, intervals=5)
    assert timeline.edges_s == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
    assert timeline.busy_cores == (1.0, 0.0, 1.0, 1.0, 0.0)
    assert timeline.waiting == (0.0, 1.0, 0.0, 0.0, 0.0)
    assert timeline.ended == (0, 1, 1, 1, 2, 2)


@st.composite
def records(draw: st.DrawFn) -> ActionRecord:
    submitted_s, wait_s, run_s = (draw(st.floats(0, 20)) for _ in range(3))
    started_s = draw(st.sampled_from([None, submitted_s + wait_s]))
    return replace(
        GOOD,
        sample_id=draw(st.sampled_from("abc")),
        submitted_s=submitted_s,
        started_s=started_s,
        finished_s=(submitted_s if started_s is None else started_s) + run_s,
        cores=draw(st.integers(1, 4)),
    )


@given(st.lists(records(), max_size=8), st.integers(1, 50))
def test_a_timeline_loses_no_time(actions: list[ActionRecord], intervals: int) -> None:
    step = a_step(*actions)
    timeline = make_timeline(step, until_s=60.0, intervals=intervals)
    width_s = 60.0 / intervals
    assert math.isclose(
        sum(timeline.busy_cores) * width_s, step.reserved_core_s, rel_tol=1e-6, abs_tol=1e-6
    )
    assert math.isclose(
        sum(timeline.waiting) * width_s,
        sum(action.queue_wait_s for action in actions),
        rel_tol=1e-6,
        abs_tol=1e-6,
    )
    assert list(timeline.ended) == sorted(timeline.ended)
    assert timeline.ended[-1] == len({action.sample_id for action in actions})
