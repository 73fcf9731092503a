"""The action: one formulation for everything a trajectory does outside the training cluster."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tangram_workers.domain.checks import require_bool, require_finite, require_text
from tangram_workers.domain.command_checks import (
    checked_argv,
    checked_env,
    checked_files,
    require_relative_path,
    require_total_size,
)
from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.domain.limits import (
    MAX_ID_LENGTH,
    MAX_PAYLOAD_BYTES,
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
)
from tangram_workers.domain.queues import CPU_QUEUE, api_queue, gpu_queue, require_name
from tangram_workers.domain.resources import Elasticity, ResourceVector
from tangram_workers.domain.reward import RewardRule

__all__ = [
    "MAX_PAYLOAD_BYTES",
    "Action",
    "ActionKind",
    "ApiCall",
    "Command",
    "Score",
]

_ID_FIELDS = ("trajectory_id", "step_id", "group_id", "idempotency_key", "environment_key")


class ActionKind(enum.StrEnum):
    """What kind of thing an action is; it decides the queue's resource type."""

    COMMAND = "command"  # a program in a sandbox; queue `cpu`
    SCORE = "score"  # reward-model inference; queue `gpu.<model>`
    API_CALL = "api_call"  # a quota-limited call; queue `api.<provider>`


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A program that runs in a sandbox."""

    #: Program and arguments; the program is looked up on the sandbox's PATH.
    argv: tuple[str, ...]
    #: Text files written below the workspace before the program starts: path -> content.
    files: Mapping[str, str] = field(default_factory=dict)
    #: Text on standard input; None is an empty input.
    stdin: str | None = None
    #: Variables added to the sandbox's own small environment.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Folder to start in, below the workspace; None is the workspace itself.
    cwd: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "argv", checked_argv(self.argv))
        object.__setattr__(self, "files", checked_files(self.files))
        object.__setattr__(self, "env", checked_env(self.env))
        if self.stdin is not None:
            stdin = require_text(
                "command.stdin", self.stdin, maximum_length=MAX_PAYLOAD_BYTES, allow_empty=True
            )
            object.__setattr__(self, "stdin", stdin)
        if self.cwd is not None:
            object.__setattr__(self, "cwd", require_relative_path("command.cwd", self.cwd))
        require_total_size(self.argv, self.env)


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A batch of samples for one reward model."""

    model: str
    responses: tuple[str, ...]
    references: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", require_name("score.model", self.model))
        for name in ("responses", "references"):
            texts = getattr(self, name)
            if not isinstance(texts, tuple | list):
                raise InvalidActionError(f"score.{name}", texts, "give a list of texts.")
            checked = tuple(
                require_text(
                    f"score.{name}[{index}]",
                    text,
                    maximum_length=MAX_PAYLOAD_BYTES,
                    allow_empty=True,
                )
                for index, text in enumerate(texts)
            )
            object.__setattr__(self, name, checked)
        if not self.responses:
            raise InvalidActionError("score.responses", self.responses, "give at least one.")
        if len(self.responses) != len(self.references):
            raise InvalidActionError(
                "score.references",
                len(self.references),
                f"there are {len(self.responses)} responses; give one reference for each.",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiCall:
    """One call to a quota-limited API."""

    provider: str
    #: Path below the provider's base URL.
    path: str
    #: JSON body of the POST.
    body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        provider = require_name("api_call.provider", self.provider)
        object.__setattr__(self, "provider", provider)
        path = require_text("api_call.path", self.path, maximum_length=2000)
        object.__setattr__(self, "path", path)
        if not isinstance(self.body, Mapping):
            raise InvalidActionError("api_call.body", self.body, "give a JSON object.")
        for name in self.body:
            require_text("api_call.body", name, maximum_length=MAX_PAYLOAD_BYTES, allow_empty=True)
        object.__setattr__(self, "body", dict(self.body))


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One unit of external work. Exactly one of `command`, `score` and `api_call` is set.

    Raises:
        InvalidActionError: If any field cannot hold its value; the error names field and mend.
    """

    command: Command | None = None
    score: Score | None = None
    api_call: ApiCall | None = None

    resources: ResourceVector = field(default_factory=ResourceVector)
    elasticity: Elasticity = field(default_factory=Elasticity)

    #: Episode that the action belongs to. Commands of one trajectory share a workspace.
    trajectory_id: str | None = None
    #: Training step, for grouping in reports.
    step_id: str | None = None
    #: Samples of one prompt.
    group_id: str | None = None
    #: True for the action whose result completes the trajectory; its workspace ends with it.
    last_of_trajectory: bool = False

    #: Seconds the action may run before it is killed and ends as `timed_out`.
    timeout_s: float = 60.0
    #: Seconds the action may wait before it ends as `expired`, without having started.
    queue_timeout_s: float = 3600.0
    #: Two submits with one key are one action; None gives every submit an action of its own.
    idempotency_key: str | None = None
    #: Actions of one key are expected to take alike; it feeds the duration estimate.
    environment_key: str | None = None
    #: How a reward is read from the result; None gives no reward.
    reward_rule: RewardRule | None = None

    def __post_init__(self) -> None:
        parts = {"command": Command, "score": Score, "api_call": ApiCall}
        given = [name for name in parts if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidActionError(
                "command/score/api_call",
                given,
                "set exactly one of them: it says what the action does.",
            )
        part = getattr(self, given[0])
        if not isinstance(part, parts[given[0]]):
            raise InvalidActionError(given[0], part, f"give a {parts[given[0]].__name__}.")
        for name, wanted in (("resources", ResourceVector), ("elasticity", Elasticity)):
            if not isinstance(getattr(self, name), wanted):
                raise InvalidActionError(name, getattr(self, name), f"give a {wanted.__name__}.")
        if self.reward_rule is not None and not isinstance(self.reward_rule, RewardRule):
            raise InvalidActionError("reward_rule", self.reward_rule, "give a RewardRule.")
        for name in _ID_FIELDS:
            if getattr(self, name) is not None:
                text = require_text(name, getattr(self, name), maximum_length=MAX_ID_LENGTH)
                object.__setattr__(self, name, text)
        require_bool("last_of_trajectory", self.last_of_trajectory)
        if self.last_of_trajectory and self.trajectory_id is None:
            raise InvalidActionError(
                "last_of_trajectory", True, "it needs a trajectory_id; give one or leave it False."
            )
        for name in ("timeout_s", "queue_timeout_s"):
            seconds = require_finite(
                name, getattr(self, name), minimum=MIN_TIMEOUT_S, maximum=MAX_TIMEOUT_S
            )
            object.__setattr__(self, name, seconds)
        if self.command is not None:
            self._check_command_resources()

    def _check_command_resources(self) -> None:
        most_milli = 1000 * self.elasticity.max_units
        if self.resources.cpu_milli > most_milli:
            raise InvalidActionError(
                "resources.cpu_milli",
                self.resources.cpu_milli,
                f"elasticity.max_units allows {most_milli}; raise it or ask for less.",
            )
        if self.resources.memory_bytes == 0:
            raise InvalidActionError(
                "resources.memory_bytes", 0, "no program runs without memory; give more."
            )

    @property
    def kind(self) -> ActionKind:
        """What the action does."""
        if self.command is not None:
            return ActionKind.COMMAND
        return ActionKind.SCORE if self.score is not None else ActionKind.API_CALL

    @property
    def queue(self) -> str:
        """The waiting line of the resource type that the action needs."""
        if self.score is not None:
            return gpu_queue(self.score.model)
        if self.api_call is not None:
            return api_queue(self.api_call.provider)
        return CPU_QUEUE

    @property
    def min_cores(self) -> int:
        """Whole cores without which a command cannot start."""
        return max(self.elasticity.min_units, -(-self.resources.cpu_milli // 1000))

    @property
    def estimate_key(self) -> str:
        """The key under which run times of like actions are remembered."""
        return f"{self.environment_key or '-'}|{self.kind}"
