"""The router: which queue an action waits in and with what score. Lower scores run first.

    score = arrival + alpha * min(estimate, cap) - last_credit * [last action of its trajectory]

All terms are in seconds and fixed at submit, so nothing is ever sorted again. Only differences
between scores matter: no action is overtaken by one that arrives more than
`alpha * cap + last_credit` seconds after it. FIFO is alpha = last_credit = 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tangram_workers.domain.action import Action
from tangram_workers.domain.errors import UnknownQueueError
from tangram_workers.domain.queues import CPU_QUEUE, api_queue, gpu_queue
from tangram_workers.scheduling.estimator import Estimate, expected_run_s


@dataclass(frozen=True, slots=True)
class ScorePolicy:
    """Weights of the score."""

    name: str
    #: Seconds of delay per expected second of run time.
    alpha: float
    #: Run times above this many seconds count as this many.
    cap_s: float
    #: Seconds by which the last action of a trajectory is moved forward.
    last_credit_s: float

    @property
    def overtaking_bound_s(self) -> float:
        """An action is never overtaken by one that arrives more than this many seconds later."""
        return self.alpha * self.cap_s + self.last_credit_s


POLICIES: Mapping[str, ScorePolicy] = {
    "act": ScorePolicy("act", alpha=0.3, cap_s=60.0, last_credit_s=60.0),
    "fifo": ScorePolicy("fifo", alpha=0.0, cap_s=0.0, last_credit_s=0.0),
}


@dataclass(frozen=True, slots=True)
class RouterSnapshot:
    """What the router knows when it decides; a stale one makes decisions slower, never wrong."""

    policy: ScorePolicy
    models: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    estimates: Mapping[str, Estimate] = field(default_factory=dict)

    @property
    def queues(self) -> tuple[str, ...]:
        """Every queue of the fleet."""
        return (
            CPU_QUEUE,
            *(gpu_queue(model) for model in self.models),
            *(api_queue(provider) for provider in self.providers),
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """Where an action waits, and why there."""

    queue: str
    #: Score less arrival time, in seconds; the store adds the arrival by the broker's clock.
    offset_s: float
    #: Expected run time on one unit, in seconds.
    estimate_s: float
    reasons: tuple[str, ...]


def decide(action: Action, snapshot: RouterSnapshot) -> Decision:
    """Decide where an action waits.

    Raises:
        UnknownQueueError: If the fleet has no queue for the action's model or provider.
    """
    _require_known_queue(action, snapshot)
    policy = snapshot.policy
    estimate_s = expected_run_s(action.estimate_key, snapshot.estimates)
    delay_s = policy.alpha * min(estimate_s, policy.cap_s)
    credit_s = policy.last_credit_s if action.last_of_trajectory else 0.0
    reasons = [f"policy {policy.name}", f"expected run time {estimate_s:.3g} s"]
    if delay_s:
        reasons.append(f"moved back {delay_s:.3g} s for its length")
    if credit_s:
        reasons.append(f"moved forward {credit_s:.3g} s as the last of its trajectory")
    return Decision(action.queue, delay_s - credit_s, estimate_s, tuple(reasons))


def _require_known_queue(action: Action, snapshot: RouterSnapshot) -> None:
    if action.score is not None and action.score.model not in snapshot.models:
        raise UnknownQueueError(
            f"score.model={action.score.model!r}: the fleet serves no such reward model. "
            f"Known models: {', '.join(snapshot.models) or 'none'}. "
            "Name it in TANGRAM_MODELS on every client and worker, or correct the name."
        )
    if action.api_call is not None and action.api_call.provider not in snapshot.providers:
        raise UnknownQueueError(
            f"api_call.provider={action.api_call.provider!r}: the fleet knows no such provider. "
            f"Known providers: {', '.join(snapshot.providers) or 'none'}. "
            "Name it in TANGRAM_PROVIDERS on every client and worker, or correct the name."
        )
