"""What the stores take and give: plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tangram_workers.domain.action import Action
from tangram_workers.domain.result import ActionResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """An action on its way into the store."""

    action_id: str
    #: Encoded action.
    body: bytes
    queue: str
    #: Score less arrival time, in seconds.
    offset_s: float
    queue_timeout_s: float
    trajectory_id: str | None
    #: Whose inbox gets the result; None if a plain Celery caller waits for the task's result.
    client_id: str | None


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """What became of a submission."""

    #: "new", "queued", "open" or "ended"; the first two need a message.
    verdict: str
    #: What it is ordered by while it waits: lower first, in seconds since 1970.
    score: float = 0.0
    #: Set if the action had ended before.
    result: ActionResult | None = None

    @property
    def needs_message(self) -> bool:
        """True if the transport must carry a message for it."""
        return self.verdict in ("new", "queued")


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """An action held under a lease."""

    action_id: str
    queue: str
    action: Action
    #: 1 for the first try.
    attempt: int
    #: Fencing token: only the newest generation can complete.
    generation: int
    submitted_s: float
    #: When it was last put into its queue. All three by the store's clock.
    queued_s: float
    claimed_s: float
    #: Tells its trajectory's workspace from those of earlier ones of that name; None without one.
    workspace: str | None = None


@dataclass(frozen=True, slots=True)
class Republish:
    """An action whose message must be published again."""

    action_id: str
    queue: str
    #: What it is ordered by: lower first, in seconds since 1970.
    score: float
    #: Where alone it can run; None is anywhere.
    node: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimRefusal:
    """Why an action could not be claimed."""

    #: "ended", "taken", "elsewhere" or "unknown".
    reason: str
    result: ActionResult | None = None
    #: Set for "elsewhere".
    republish: Republish | None = None


class LeaseState(enum.StrEnum):
    """What a renewal found."""

    HELD = "held"
    CANCEL = "cancel"
    LOST = "lost"
