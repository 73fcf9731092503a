"""The figures of one step. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tangram_workers.bench.demo.records import ActionRecord, StepRecord
from tangram_workers.bench.demo.samples import SampleKind
from tangram_workers.bench.demo.trajectories import Stage
from tangram_workers.domain.result import Outcome

#: Outcomes that say something about an action and not about the fleet.
_OWN_OUTCOMES = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.OOM})


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFigures:
    """What a step came to. A mean over nothing is None."""

    samples: int
    actions: int
    #: Samples that got a reward of either kind.
    rewarded: int
    undamaged_reward_mean: float | None
    damaged_reward_mean: float | None
    #: Actions that used up their run timeout without an endless loop in them.
    false_timeouts: int
    #: Endless loops that were stopped.
    true_timeouts: int
    #: Actions that the fleet failed; they have no reward, not a reward of zero.
    infrastructure_errors: int
    #: What one of them said.
    first_infrastructure_error: str | None
    act_mean_s: float | None
    act_p50_s: float | None
    act_p99_s: float | None
    queue_wait_mean_s: float | None
    step_s: float
    #: Core-seconds that nobody else could have.
    core_s_reserved: float
    #: CPU seconds that programs used.
    core_s_used: float
    #: Share of the trajectories' lives that their actions ran for, were no action ever to wait.
    busy_share: float | None


def step_figures(step: StepRecord) -> StepFigures:
    """Return the figures of a step."""
    actions = step.actions
    broken = [action for action in actions if action.outcome not in _OWN_OUTCOMES]
    timed_out = [action for action in actions if action.outcome is Outcome.TIMED_OUT]
    true_timeouts = sum(map(_is_loop, timed_out))
    rewarded = [action for action in actions if action.reward is not None]
    acts_s = [action.act_s for action in actions]
    busy_s = sum(action.run_s for action in actions)
    life_s = busy_s + step.gaps_s
    return StepFigures(
        samples=step.samples,
        actions=len(actions),
        rewarded=len(rewarded),
        undamaged_reward_mean=_reward_mean(a for a in rewarded if not a.kind.is_damaged),
        damaged_reward_mean=_reward_mean(a for a in rewarded if a.kind.is_damaged),
        false_timeouts=len(timed_out) - true_timeouts,
        true_timeouts=true_timeouts,
        infrastructure_errors=len(broken),
        first_infrastructure_error=broken[0].error if broken else None,
        act_mean_s=mean(acts_s),
        act_p50_s=percentile(acts_s, 0.50),
        act_p99_s=percentile(acts_s, 0.99),
        queue_wait_mean_s=mean([action.queue_wait_s for action in actions]),
        step_s=step.duration_s,
        core_s_reserved=step.reserved_core_s,
        core_s_used=sum(action.cpu_s for action in actions),
        busy_share=busy_s / life_s if life_s > 0 else None,
    )


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None


def percentile(values: Sequence[float], fraction: float) -> float | None:
    """Return the least value that a fraction of all do not exceed; None of nothing.

    Args:
        values: In any order.
        fraction: Above 0 and at most 1.
    """
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


def _reward_mean(actions: Iterable[ActionRecord]) -> float | None:
    return mean([action.reward for action in actions if action.reward is not None])


def _is_loop(action: ActionRecord) -> bool:
    return action.kind is SampleKind.ENDLESS_LOOP and action.stage is Stage.TEST
