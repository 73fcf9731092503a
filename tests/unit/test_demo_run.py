"""The whole demo on a fleet of one process, which runs the very commands."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tangram_workers.bench.demo.gaps import draw_gaps_s
from tangram_workers.bench.demo.plot import check_plot_path, write_plot
from tangram_workers.bench.demo.problems import load_problems
from tangram_workers.bench.demo.progress import RichProgress, SilentProgress
from tangram_workers.bench.demo.run import DemoConfig, run_demo
from tangram_workers.bench.demo.samples import make_samples
from tangram_workers.bench.demo.step import run_fleet_step, run_static_step
from tangram_workers.bench.demo.trajectories import DemoTrajectory, Stage, make_trajectory
from tangram_workers.domain.action import Action
from tangram_workers.domain.errors import (
    BrokerUnavailableError,
    InputError,
    MissingPartError,
    TangramError,
)
from tangram_workers.domain.result import ActionResult, Outcome, Timings, Usage
from tangram_workers.domain.reward import command_reward

CORES = 2
#: The broker's clock is not this process's.
CLOCK_AHEAD_S = 1e9


class SmallFleet:
    """Runs commands on threads, in a folder for each trajectory; first come, first served."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.submitted: list[Action] = []
        self._cores = ThreadPoolExecutor(CORES)

    async def submit(self, action: Action) -> Awaitable[ActionResult]:
        self.submitted.append(action)
        submitted_s = time.monotonic() + CLOCK_AHEAD_S
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._cores, self.run, action, submitted_s)

    def run(self, action: Action, submitted_s: float) -> ActionResult:
        command = action.command
        assert command is not None
        assert action.trajectory_id is not None
        started_s = time.monotonic() + CLOCK_AHEAD_S
        folder = self.folder / action.trajectory_id
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in command.files.items():
            (folder / path).write_text(text, encoding="utf-8")
        program = sys.executable if command.argv[0] == "python3" else command.argv[0]
        exit_code, stdout = None, ""
        try:
            done = subprocess.run(
                [program, *command.argv[1:]],
                cwd=folder,
                input=command.stdin or "",
                capture_output=True,
                text=True,
                timeout=action.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            outcome = Outcome.TIMED_OUT
        else:
            exit_code, stdout = done.returncode, done.stdout
            outcome = Outcome.SUCCEEDED if exit_code == 0 else Outcome.FAILED
        rule = action.reward_rule
        return ActionResult(
            action_id="a",
            outcome=outcome,
            exit_code=exit_code,
            stdout=stdout,
            reward=None if rule is None else command_reward(rule, exit_code, stdout),
            timings=Timings(
                submitted_s=submitted_s,
                started_s=started_s,
                finished_s=time.monotonic() + CLOCK_AHEAD_S,
            ),
            usage=Usage(cpu_s=0.01, cores=1),
        )


class QuickFleet(SmallFleet):
    """Answers without running anything; `answer` may change the result."""

    def __init__(self, answer: Callable[[Action, ActionResult], ActionResult]) -> None:
        super().__init__(Path())
        self.answer = answer

    def run(self, action: Action, submitted_s: float) -> ActionResult:
        started_s = time.monotonic() + CLOCK_AHEAD_S
        time.sleep(0.01)
        result = ActionResult(
            action_id="a",
            outcome=Outcome.SUCCEEDED,
            timings=Timings(
                submitted_s=submitted_s,
                started_s=started_s,
                finished_s=time.monotonic() + CLOCK_AHEAD_S,
            ),
            usage=Usage(cores=1),
        )
        return self.answer(action, result)


class CountingProgress:
    def __init__(self) -> None:
        self.parts: list[list[int]] = []

    def begin(self, label: str, total: int) -> None:
        self.parts.append([0, total])

    def advance(self) -> None:
        self.parts[-1][0] += 1


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path)


def trajectories(count: int, gap_s: float = 0.0) -> list[DemoTrajectory]:
    samples = make_samples(load_problems(-(-count // 4)))[:count]
    return [
        make_trajectory(sample, step_id="s", nonce="n", gaps_s=(gap_s,) * len(Stage))
        for sample in samples
    ]


def nothing() -> None:
    """Hear of a trajectory's end."""


def as_it_is(_action: Action, result: ActionResult) -> ActionResult:
    return result


def broken(_action: Action, result: ActionResult) -> ActionResult:
    return ActionResult(
        action_id="a",
        outcome=Outcome.INFRASTRUCTURE_ERROR,
        error="No sandbox.",
        timings=Timings(
            submitted_s=result.timings.submitted_s, finished_s=result.timings.finished_s
        ),
    )


async def test_a_small_demo_from_problems_to_picture(fleet: SmallFleet, tmp_path: Path) -> None:
    progress = CountingProgress()
    report = await run_demo(fleet, DemoConfig(problems=10, cores=CORES), progress)
    assert report.faults() == ()
    found = report.to_json()
    assert (found["problems"], found["samples"], found["actions"]) == (10, 40, 120)
    assert found["undamaged_reward_mean"] == found["static"]["undamaged_reward_mean"] == 1.0
    assert found["damaged_reward_mean"] == found["static"]["damaged_reward_mean"] == 0.0
    assert found["true_timeouts"] == found["endless_loops"] == 1
    assert found["core_s_reserved"] < found["static"]["core_s_reserved"]
    assert progress.parts == [[13, 13], [40, 40], [40, 40]]

    nonces = [action.reward_rule.last_line for action in fleet.submitted if action.reward_rule]
    assert len(set(nonces)) == len(nonces)
    for name in ("demo.png", "demo.svg", "demo.PDF"):
        write_plot(report, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 5_000


async def test_a_trajectorys_actions_follow_each_other_after_their_gaps() -> None:
    fleet = QuickFleet(as_it_is)
    step = await run_fleet_step(
        fleet, trajectories(3, gap_s=0.05), cores=CORES, concurrency=None, on_trajectory=nothing
    )
    assert len(step.actions) == 9
    for sample_id in {action.sample_id for action in step.actions}:
        mine = [action for action in step.actions if action.sample_id == sample_id]
        assert [action.stage for action in mine] == list(Stage)
        for before, after in itertools.pairwise(mine):
            assert after.submitted_s >= before.finished_s + 0.049
        assert mine[0].submitted_s >= 0.049
    assert step.gaps_s == pytest.approx(0.45)


async def test_times_are_on_the_steps_own_clock() -> None:
    step = await run_fleet_step(
        QuickFleet(as_it_is), trajectories(4), cores=CORES, concurrency=None, on_trajectory=nothing
    )
    for action in step.actions:
        assert action.started_s is not None
        assert 0 <= action.submitted_s <= action.started_s <= action.finished_s
        assert action.finished_s <= step.duration_s + 0.005


@pytest.mark.parametrize("policy", ["fleet", "static"])
async def test_no_more_trajectories_are_under_way_than_may_be(policy: str) -> None:
    under_way: set[str | None] = set()
    most = 0

    def watch(action: Action, result: ActionResult) -> ActionResult:
        nonlocal most
        under_way.add(action.trajectory_id)
        most = max(most, len(under_way))
        if action.last_of_trajectory:
            under_way.discard(action.trajectory_id)
        return result

    options: dict[str, Any] = {"cores": CORES, "on_trajectory": nothing}
    if policy == "fleet":
        await run_fleet_step(QuickFleet(watch), trajectories(6), concurrency=2, **options)
    else:
        await run_static_step(QuickFleet(watch), trajectories(6), concurrency=None, **options)
    assert most == 2


async def test_waiting_for_a_slot_is_queue_wait_from_the_first_gaps_end() -> None:
    step = await run_static_step(
        QuickFleet(as_it_is),
        trajectories(4, gap_s=0.05),
        cores=1,
        concurrency=None,
        on_trajectory=nothing,
    )
    first = [action for action in step.actions if action.stage is Stage.WRITE]
    assert [action.submitted_s for action in first] == pytest.approx([0.05] * 4, abs=0.02)
    # Each trajectory before it held the slot for three actions and the two gaps between them.
    for earlier, later in itertools.pairwise(first):
        assert later.queue_wait_s >= earlier.queue_wait_s + 0.12


async def test_a_trajectory_stops_where_the_fleet_fails_it() -> None:
    step = await run_fleet_step(
        QuickFleet(broken), trajectories(2), cores=CORES, concurrency=None, on_trajectory=nothing
    )
    assert [action.stage for action in step.actions] == [Stage.WRITE] * 2
    assert [action.reward for action in step.actions] == [None] * 2


async def test_a_fleet_that_fails_the_warm_up_is_told_at_once() -> None:
    with pytest.raises(TangramError, match=r"warm-up .*No sandbox\..*tangram doctor"):
        await run_demo(QuickFleet(broken), DemoConfig(problems=1, cores=1), SilentProgress())


async def test_a_lost_broker_ends_the_step_with_its_own_error() -> None:
    class Unreachable:
        async def submit(self, action: Action) -> Awaitable[ActionResult]:
            raise BrokerUnavailableError("gone")

    before = len(asyncio.all_tasks())
    with pytest.raises(BrokerUnavailableError, match="gone"):
        await run_static_step(
            Unreachable(), trajectories(4), cores=1, concurrency=None, on_trajectory=nothing
        )
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize(
    ("field", "value"),
    [("busy_share", 0.0), ("busy_share", float("nan")), ("cores", 0), ("concurrency", 0)],
)
def test_a_config_that_cannot_work_is_refused(field: str, value: Any) -> None:
    fields = {"cores": 1, field: value}
    with pytest.raises(InputError, match=field):
        DemoConfig(**fields)


def test_gaps_are_the_same_whatever_else_is_run() -> None:
    assert draw_gaps_s("HumanEval/0.crash", seed=0, count=3) == pytest.approx(
        draw_gaps_s("HumanEval/0.crash", seed=0, count=4)[:3]
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [("demo.jpg", r"\.png, \.svg, \.pdf"), ("demo", r"\.png"), ("no/demo.png", "folder")],
)
def test_a_picture_that_cannot_be_written_is_refused_beforehand(
    tmp_path: Path, path: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_plot_path(tmp_path / path)


def test_a_missing_matplotlib_is_named_with_its_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPartError, match=r"pip install 'tangram-workers\[plot\]'"):
        check_plot_path(tmp_path / "demo.png")


def test_progress_shows_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    with RichProgress() as progress:
        for label in ("first part", "second part"):
            progress.begin(label, 2)
            progress.advance()
            progress.advance()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "first part" in captured.err
    assert captured.err.count("2/2") == 2
