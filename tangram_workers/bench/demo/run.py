"""The demo: warm up, then one step by the fleet and the same step by the static baseline."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tangram_workers.bench.demo.gaps import draw_gaps_s, gap_factor
from tangram_workers.bench.demo.problems import load_problems
from tangram_workers.bench.demo.progress import ProgressSink
from tangram_workers.bench.demo.report import DemoReport
from tangram_workers.bench.demo.samples import Sample, SampleKind, make_samples
from tangram_workers.bench.demo.step import SubmitsActions, run_fleet_step, run_static_step
from tangram_workers.bench.demo.trajectories import DemoTrajectory, Stage, make_trajectory
from tangram_workers.domain.errors import InputError, TangramError
from tangram_workers.domain.result import Outcome

#: Trajectories of the warm-up; enough for a mean, few enough for a second.
WARM_UP_TRAJECTORIES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoConfig:
    """What to run.

    Raises:
        InputError: If a field cannot hold its value.
    """

    #: Take only so many problems; None takes all.
    problems: int | None = None
    #: Of the waits between actions.
    seed: int = 0
    #: Share of a trajectory's life for which its actions run. Recorded: a fifth to a third.
    busy_share: float = 0.30
    #: Cores of the fleet: the baseline has a slot for each.
    cores: int
    #: Trajectories under way at once, under either policy, as a rollout engine may bound them;
    #: None for all of them.
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if not 0.01 <= self.busy_share <= 0.99:
            raise InputError(
                f"busy_share={self.busy_share} is not valid: give a share from 0.01 to 0.99; the "
                "recorded ones lie between 0.2 and 0.33."
            )
        for name in ("cores", "concurrency", "problems"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InputError(f"{name}={number} is not valid: give a whole number from 1.")


async def run_demo(
    client: SubmitsActions, config: DemoConfig, progress: ProgressSink
) -> DemoReport:
    """Run both steps and return what they came to.

    Args:
        client: An open one, of a fleet with `config.cores` cores that does nothing else.
        config: What to run.
        progress: Is told of every trajectory that ends.

    Raises:
        MissingPartError: If the package with the problems is not there.
        InputError: If there are fewer problems than asked for.
        TangramError: If the fleet fails at the warm-up already.
    """
    problems = load_problems(config.problems)
    samples = make_samples(problems)
    loops = sum(sample.kind is SampleKind.ENDLESS_LOOP for sample in samples)
    run_id = secrets.token_hex(4)

    busy_s = await _warm_up(client, samples, run_id, config, progress)
    recorded_s = [
        draw_gaps_s(sample.sample_id, seed=config.seed, count=len(Stage)) for sample in samples
    ]
    factor = gap_factor(
        recorded_s, measured_busy_s=busy_s, loops=loops, busy_share=config.busy_share
    )

    progress.begin("fleet: a core per running action", len(samples))
    fleet = await run_fleet_step(
        client,
        _trajectories(samples, f"{run_id}.fleet", recorded_s, factor),
        cores=config.cores,
        concurrency=config.concurrency,
        on_trajectory=progress.advance,
    )
    progress.begin("static: a core per trajectory", len(samples))
    static = await run_static_step(
        client,
        _trajectories(samples, f"{run_id}.static", recorded_s, factor),
        cores=config.cores,
        concurrency=config.concurrency,
        on_trajectory=progress.advance,
    )
    return DemoReport(
        problems=len(problems),
        loops=loops,
        seed=config.seed,
        gap_factor=factor,
        fleet=fleet,
        static=static,
    )


async def _warm_up(
    client: SubmitsActions,
    samples: Sequence[Sample],
    run_id: str,
    config: DemoConfig,
    progress: ProgressSink,
) -> float:
    """Return the mean tool time of a trajectory without an endless loop, in seconds.

    As many run at once as there are cores, and without gaps: they share the machine as the
    measured ones will.
    """
    # Spread over the problems, by an odd stride: an even one would always hit the same kind.
    finite = [sample for sample in samples if sample.kind is not SampleKind.ENDLESS_LOOP]
    chosen = finite[:: max(1, len(finite) // WARM_UP_TRAJECTORIES | 1)][:WARM_UP_TRAJECTORIES]
    progress.begin("warm-up", len(chosen))
    step = await run_fleet_step(
        client,
        _trajectories(chosen, f"{run_id}.warm-up", [(0.0,) * len(Stage)] * len(chosen), 1.0),
        cores=config.cores,
        concurrency=config.cores,
        on_trajectory=progress.advance,
    )
    for action in step.actions:
        if action.outcome not in (Outcome.SUCCEEDED, Outcome.FAILED):
            raise TangramError(
                f"The warm-up failed: {action.stage} of {action.sample_id} ended as "
                f"{action.outcome}: {action.error} Run `tangram doctor`."
            )
    return sum(action.run_s for action in step.actions) / len(chosen)


def _trajectories(
    samples: Sequence[Sample],
    step_id: str,
    recorded_gaps_s: Sequence[Sequence[float]],
    factor: float,
) -> list[DemoTrajectory]:
    return [
        make_trajectory(
            sample,
            step_id=step_id,
            nonce=secrets.token_hex(16),
            gaps_s=tuple(gap_s * factor for gap_s in gaps_s),
        )
        for sample, gaps_s in zip(samples, recorded_gaps_s, strict=True)
    ]
