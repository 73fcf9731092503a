"""One synchronous RL step: every trajectory from its first gap to its reward.

The fleet's way sends each action off by itself. The static baseline runs the same actions on the
same fleet and in the same sandboxes, but holds one of as many slots as there are cores for a
trajectory's whole life, as a pod for each trajectory does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tangram_workers.bench.demo.records import ActionRecord, Policy, StepRecord
from tangram_workers.bench.demo.samples import Sample
from tangram_workers.bench.demo.trajectories import DemoTrajectory, Stage
from tangram_workers.domain.action import Action
from tangram_workers.domain.result import ActionResult, Outcome


class SubmitsActions(Protocol):
    """What the demo needs of a client."""

    async def submit(self, action: Action) -> Awaitable[ActionResult]:
        """Submit an action; awaiting what comes back gives its result."""


@dataclass(frozen=True, slots=True)
class _Observed:
    """An action's result, and when this process wanted and submitted it, since the step's start."""

    sample: Sample
    stage: Stage
    wanted_s: float
    submitted_s: float
    result: ActionResult


async def run_fleet_step(
    client: SubmitsActions,
    trajectories: Sequence[DemoTrajectory],
    *,
    cores: int,
    concurrency: int | None,
    on_trajectory: Callable[[], None],
) -> StepRecord:
    """Run a step in which an action holds cores only while it runs.

    Args:
        client: An open one.
        trajectories: What to run.
        cores: Cores of the fleet.
        concurrency: Trajectories that may be under way at once; None for all of them.
        on_trajectory: Called as each one ends.
    """
    step = _Step(client, on_trajectory)
    admission = asyncio.Semaphore(concurrency or max(1, len(trajectories)))

    async def one(trajectory: DemoTrajectory) -> None:
        async with admission:
            await step.run(trajectory, first_wanted_s=step.elapsed_s() + trajectory.gaps_s[0])

    await _run_all([one(trajectory) for trajectory in trajectories])
    return step.record(Policy.FLEET, trajectories, cores)


async def run_static_step(
    client: SubmitsActions,
    trajectories: Sequence[DemoTrajectory],
    *,
    cores: int,
    concurrency: int | None,
    on_trajectory: Callable[[], None],
) -> StepRecord:
    """Run a step in which a trajectory holds a core from its first action to its end.

    Slots go to trajectories in order. As with a pod that is still pending, the model may write its
    first answer meanwhile; from then on the wait for the slot is the first action's queue wait.

    Args:
        client: An open one.
        trajectories: What to run.
        cores: Cores of the fleet, and so slots.
        concurrency: Trajectories that may be under way at once, those that wait for a slot
            included; None for all of them.
        on_trajectory: Called as each trajectory ends.
    """
    step = _Step(client, on_trajectory)
    admission = asyncio.Semaphore(concurrency or max(1, len(trajectories)))
    slots = asyncio.Semaphore(cores)

    async def one(trajectory: DemoTrajectory) -> None:
        async with admission:
            first_wanted_s = step.elapsed_s() + trajectory.gaps_s[0]
            async with slots:
                await step.run(trajectory, first_wanted_s=first_wanted_s)

    await _run_all([one(trajectory) for trajectory in trajectories])
    return step.record(Policy.STATIC, trajectories, cores)


class _Step:
    """What both policies share: running a trajectory's actions, and writing them down."""

    def __init__(self, client: SubmitsActions, on_trajectory: Callable[[], None]) -> None:
        self._client = client
        self._on_trajectory = on_trajectory
        self._began_s = time.monotonic()
        self._observed: list[_Observed] = []

    def elapsed_s(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self._began_s

    async def run(self, trajectory: DemoTrajectory, *, first_wanted_s: float) -> None:
        """Run a trajectory's actions one after another, each after its gap.

        Args:
            trajectory: What to run.
            first_wanted_s: When its first gap ends, in seconds since the step began; if that is
                past, the first action is submitted at once and has waited since then.
        """
        wanted_s = first_wanted_s
        later_gaps_s = [*trajectory.gaps_s[1:], 0.0]
        for stage, action, next_gap_s in zip(Stage, trajectory.actions, later_gaps_s, strict=True):
            await asyncio.sleep(max(0.0, wanted_s - self.elapsed_s()))
            submitted_s = self.elapsed_s()
            result = await (await self._client.submit(action))
            self._observed.append(
                _Observed(trajectory.sample, stage, wanted_s, submitted_s, result)
            )
            if result.outcome is not Outcome.SUCCEEDED:
                # Tests of a file that was never written would say nothing about the sample.
                break
            wanted_s = self.elapsed_s() + next_gap_s
        self._on_trajectory()

    def record(
        self, policy: Policy, trajectories: Sequence[DemoTrajectory], cores: int
    ) -> StepRecord:
        """Return everything since the start, on the step's own time."""
        duration_s = self.elapsed_s()
        # Results carry the broker's clock. An action reaches the broker only after it was sent, so
        # the least difference between the two is, to within one submit, when the step began there.
        began_there_s = min(
            (seen.result.timings.submitted_s - seen.submitted_s for seen in self._observed),
            default=0.0,
        )
        return StepRecord(
            policy=policy,
            cores=cores,
            samples=len(trajectories),
            duration_s=duration_s,
            gaps_s=sum(sum(trajectory.gaps_s) for trajectory in trajectories),
            actions=tuple(_record(seen, began_there_s) for seen in self._observed),
        )


def _record(seen: _Observed, began_there_s: float) -> ActionRecord:
    timings, usage = seen.result.timings, seen.result.usage
    started_s = None
    if timings.started_s is not None:
        started_s = max(seen.wanted_s, timings.started_s - began_there_s)
    return ActionRecord(
        sample_id=seen.sample.sample_id,
        kind=seen.sample.kind,
        stage=seen.stage,
        submitted_s=seen.wanted_s,
        started_s=started_s,
        finished_s=max(started_s or seen.wanted_s, timings.finished_s - began_there_s),
        cores=usage.cores,
        cpu_s=usage.cpu_s,
        outcome=seen.result.outcome,
        error=seen.result.error,
        reward=seen.result.reward,
    )


async def _run_all(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all at once; the first error ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
