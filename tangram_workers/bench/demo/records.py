"""What is written down about every action of a step."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tangram_workers.bench.demo.samples import SampleKind
from tangram_workers.bench.demo.trajectories import Stage
from tangram_workers.domain.result import Outcome


class Policy(enum.StrEnum):
    """Who decides when an action runs."""

    FLEET = "fleet"  # a core is held while an action runs
    STATIC = "static"  # a core is held by a trajectory for its whole life


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionRecord:
    """One action. Times are in seconds since the step began."""

    sample_id: str
    kind: SampleKind
    stage: Stage
    #: When its trajectory wanted it to run: the end of the gap before it.
    submitted_s: float
    #: None if it never started.
    started_s: float | None
    finished_s: float
    #: Cores that it was granted.
    cores: int
    #: CPU seconds that it used.
    cpu_s: float
    outcome: Outcome
    #: What went wrong, in words; None for a success.
    error: str | None
    #: None for an action without a reward, and where the fleet failed it.
    reward: float | None

    @property
    def act_s(self) -> float:
        """Seconds from when it was wanted to its end."""
        return self.finished_s - self.submitted_s

    @property
    def queue_wait_s(self) -> float:
        """Seconds from when it was wanted to its start; to its end if it never started."""
        end_s = self.finished_s if self.started_s is None else self.started_s
        return end_s - self.submitted_s

    @property
    def run_s(self) -> float:
        """Seconds that it ran."""
        return 0.0 if self.started_s is None else self.finished_s - self.started_s


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """One step under one policy."""

    policy: Policy
    #: Cores of the machine.
    cores: int
    #: Samples that the step was to get a reward for.
    samples: int
    #: From the start to the last trajectory's end, in seconds.
    duration_s: float
    #: Seconds of LLM time of all trajectories together.
    gaps_s: float
    actions: tuple[ActionRecord, ...]

    @property
    def reserved_core_s(self) -> float:
        """Core-seconds that nobody else could have."""
        if self.policy is Policy.STATIC:
            return self.cores * self.duration_s
        return sum(action.cores * action.run_s for action in self.actions)
