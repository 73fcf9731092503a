"""What became of an action."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from tangram_workers.domain import errors


class Outcome(enum.StrEnum):
    """How an action ended. No two of these are ever confused with each other."""

    SUCCEEDED = "succeeded"  # its program exited with 0, or its call was answered
    FAILED = "failed"  # its own fault: exit code other than 0, killed by its own signal
    TIMED_OUT = "timed_out"  # ran longer than timeout_s
    OOM = "oom"  # needed more memory than memory_bytes
    CANCELLED = "cancelled"  # somebody asked for it
    EXPIRED = "expired"  # waited longer than queue_timeout_s, never started
    INFRASTRUCTURE_ERROR = "infrastructure_error"  # the fleet's fault; says nothing of the action


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """Seconds since 1970 by the broker's clock, so they compare across machines."""

    submitted_s: float
    #: None if the action never started.
    started_s: float | None = None
    finished_s: float

    @property
    def queue_wait_s(self) -> float:
        """Seconds from submit to start (to the end, for an action that never started)."""
        end_s = self.finished_s if self.started_s is None else self.started_s
        return max(0.0, end_s - self.submitted_s)

    @property
    def run_s(self) -> float:
        """Seconds from start to end; 0.0 for an action that never started."""
        return 0.0 if self.started_s is None else max(0.0, self.finished_s - self.started_s)

    @property
    def act_s(self) -> float:
        """Action completion time: finished - submitted, queue wait included."""
        return max(0.0, self.finished_s - self.submitted_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What the action used."""

    #: CPU seconds of all its processes.
    cpu_s: float = 0.0
    #: Largest memory of all its processes together, where the system can tell; else 0.
    peak_memory_bytes: int = 0
    #: Cores granted while it ran.
    cores: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionResult:
    """The one answer to an action."""

    action_id: str
    outcome: Outcome
    #: What happened and what to do next; None for a success.
    error: str | None = None
    exit_code: int | None = None
    #: UTF-8 text; bytes that are not UTF-8 are shown as \\xNN.
    stdout: str = ""
    stderr: str = ""
    #: True if more was printed than is kept here.
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    #: JSON answer of a score or an API call.
    value: Any = None
    #: None if the action has no reward rule, or if the fleet failed it: never 0 for our own fault.
    reward: float | None = None
    timings: Timings
    usage: Usage = field(default_factory=Usage)
    #: 1 for the first try.
    attempt: int = 0
    #: Process that ran it, and machine; empty if none did.
    worker: str = ""
    node: str = ""

    @property
    def is_success(self) -> bool:
        """True if the action succeeded."""
        return self.outcome is Outcome.SUCCEEDED

    def raise_for_outcome(self) -> ActionResult:
        """Return self, or raise the error that fits the outcome.

        Raises:
            ActionError: One of its subclasses, with this result in `.result`.
        """
        if self.is_success:
            return self
        reason = self.error or f"it ended as {self.outcome}; its output says more."
        raise _ERROR_OF[self.outcome](f"Action {self.action_id}: {reason}", self)


_ERROR_OF: dict[Outcome, type[errors.ActionError]] = {
    Outcome.FAILED: errors.ActionFailedError,
    Outcome.TIMED_OUT: errors.ActionTimedOutError,
    Outcome.OOM: errors.ActionOutOfMemoryError,
    Outcome.CANCELLED: errors.ActionCancelledError,
    Outcome.EXPIRED: errors.ActionExpiredError,
    Outcome.INFRASTRUCTURE_ERROR: errors.InfrastructureError,
}
