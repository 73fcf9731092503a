"""What an action needs and how it speeds up: integers for amounts, never floats."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tangram_workers.domain.checks import require_finite, require_int
from tangram_workers.domain.errors import InvalidActionError

MIB = 1024 * 1024
GIB = 1024 * MIB

MAX_UNITS = 1024
MAX_AMOUNT = 2**53 - 1  # the largest integer that a JSON or Lua number keeps exactly


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceVector:
    """What one action needs at its minimum. Zero means "none of it"."""

    #: Thousandths of a core.
    cpu_milli: int = 1000
    #: Memory limit of the action's sandbox, in bytes.
    memory_bytes: int = 1 * GIB
    #: Memory of the device that serves the action's model, in bytes.
    gpu_memory_bytes: int = 0
    #: Tokens taken from the provider's quota.
    quota_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("cpu_milli", "memory_bytes", "gpu_memory_bytes", "quota_tokens"):
            amount = require_int(
                f"resources.{name}", getattr(self, name), minimum=0, maximum=MAX_AMOUNT
            )
            object.__setattr__(self, name, amount)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedupCurve:
    """How run time falls with units: `T(k) = T(1) * max(k ** -exponent, floor)`.

    Near linear, then a wall at the longest part that cannot be divided. The default is the shape
    measured on recorded test suites (docs/explanation/scheduling.md, section "Speed-up").
    """

    #: 1.0 is linear, 0.0 is no gain at all.
    exponent: float = 0.9
    #: Longest indivisible part as a fraction of the serial time, 0..1.
    floor: float = 1 / 16

    def __post_init__(self) -> None:
        for name in ("exponent", "floor"):
            number = require_finite(
                f"elasticity.speedup.{name}", getattr(self, name), minimum=0.0, maximum=1.0
            )
            object.__setattr__(self, name, number)

    def run_time_fraction(self, units: int) -> float:
        """Return T(units) / T(1).

        Args:
            units: Units of the elastic resource, at least 1.
        """
        return float(max(units**-self.exponent, self.floor))

    def useful_maximum(self, limit: int) -> int:
        """Return the fewest units that already give all the speed-up there is, at most `limit`."""
        if self.exponent <= 0 or self.floor >= 1:
            return 1
        if self.floor <= 0:
            return limit
        # Compared in logarithms: floor ** (-1 / exponent) overflows for a small exponent.
        log_units = -math.log(self.floor) / self.exponent
        if log_units >= math.log(limit):
            return limit
        return max(1, math.ceil(math.exp(log_units) - 1e-9))


@dataclass(frozen=True, kw_only=True, slots=True)
class Elasticity:
    """The range of units of the action's one elastic resource.

    Units are cores for a command, model replicas for a score, parallel requests for an API call.
    """

    min_units: int = 1
    max_units: int = 1
    speedup: SpeedupCurve = field(default_factory=SpeedupCurve)

    def __post_init__(self) -> None:
        for name in ("min_units", "max_units"):
            units = require_int(
                f"elasticity.{name}", getattr(self, name), minimum=1, maximum=MAX_UNITS
            )
            object.__setattr__(self, name, units)
        if self.min_units > self.max_units:
            raise InvalidActionError(
                "elasticity.min_units",
                self.min_units,
                f"it is above max_units={self.max_units}; give min_units <= max_units.",
            )
        if not isinstance(self.speedup, SpeedupCurve):
            raise InvalidActionError("elasticity.speedup", self.speedup, "give a SpeedupCurve.")
