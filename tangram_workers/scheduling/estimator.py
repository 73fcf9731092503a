"""How long an action will run, from what like actions took before.

A log-space moving average per key, with fall-backs from (environment, kind) to kind to everything.
Durations of agents' actions span four decades and are barely predictable beforehand, so the
estimate is kept cheap: three numbers per key, no look at the command's text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

#: Estimate for a fleet that has seen nothing yet, in seconds.
COLD_PRIOR_S = 3.0
#: Fewest observations before a key is believed over its fall-back.
MIN_OBSERVATIONS = 2
#: Smallest step of the moving average: how fast old work is forgotten.
MIN_STEP = 0.2
#: Durations are clamped here before the logarithm, in seconds.
SHORTEST_S = 1e-4

GLOBAL_KEY = "*"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Moving mean and variance of the logarithm of a duration in seconds."""

    mean_log: float = 0.0
    variance_log: float = 0.0
    observations: int = 0

    def observe(self, duration_s: float) -> Estimate:
        """Return the estimate after one more duration.

        Args:
            duration_s: Run time on one unit, in seconds.
        """
        count = self.observations + 1
        step = max(MIN_STEP, 1.0 / count)
        difference = math.log(max(duration_s, SHORTEST_S)) - self.mean_log
        mean = self.mean_log + step * difference
        variance = (1.0 - step) * (self.variance_log + step * difference * difference)
        return Estimate(mean, variance, count)

    @property
    def expected_s(self) -> float:
        """Expected duration in seconds: the mean of the lognormal, its variance capped at 2."""
        return math.exp(self.mean_log + min(self.variance_log, 2.0) / 2.0)


def fallback_keys(key: str) -> tuple[str, ...]:
    """Return the keys to look an estimate up under, most precise first.

    Args:
        key: `environment|kind`, as `Action.estimate_key` gives it.
    """
    kind = key.rpartition("|")[2]
    return (key, f"*|{kind}", GLOBAL_KEY)


def expected_run_s(key: str, estimates: Mapping[str, Estimate]) -> float:
    """Return the expected run time on one unit, in seconds.

    Args:
        key: `Action.estimate_key`.
        estimates: What has been observed so far.
    """
    for candidate in fallback_keys(key):
        estimate = estimates.get(candidate)
        if estimate is not None and estimate.observations >= MIN_OBSERVATIONS:
            return estimate.expected_s
    return COLD_PRIOR_S
