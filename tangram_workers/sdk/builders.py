"""Short ways to the most common actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from tangram_workers.domain.action import Action, Command
from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.domain.resources import Elasticity, ResourceVector
from tangram_workers.domain.reward import RewardRule

#: Language -> (file that the code is written to, how it is run).
LANGUAGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "python": ("main.py", ("python3", "main.py")),
    "bash": ("main.sh", ("bash", "main.sh")),
}


class ActionOptions(TypedDict, total=False):
    """Fields of an Action that the short ways hand on."""

    resources: ResourceVector
    elasticity: Elasticity
    trajectory_id: str | None
    step_id: str | None
    group_id: str | None
    last_of_trajectory: bool
    timeout_s: float
    queue_timeout_s: float
    idempotency_key: str | None
    environment_key: str | None
    reward_rule: RewardRule | None


class CommandOptions(TypedDict, total=False):
    """Fields of a Command beside its program."""

    files: Mapping[str, str]
    stdin: str | None
    env: Mapping[str, str]
    cwd: str | None


class RunOptions(ActionOptions, CommandOptions, total=False):
    """Fields of both."""


_COMMAND_FIELDS = frozenset(CommandOptions.__annotations__)


def command_action(argv: Sequence[str], options: RunOptions) -> Action:
    """Return an action that runs a program."""
    command = {name: value for name, value in options.items() if name in _COMMAND_FIELDS}
    rest = {name: value for name, value in options.items() if name not in _COMMAND_FIELDS}
    return Action(command=Command(argv=argv, **command), **rest)  # type: ignore[arg-type]


def code_action(code: str, language: str, options: RunOptions) -> Action:
    """Return an action that runs code.

    Raises:
        InvalidActionError: If the language is unknown.
    """
    if language not in LANGUAGES:
        raise InvalidActionError(
            "language", language, f"give one of: {', '.join(sorted(LANGUAGES))}."
        )
    file_name, argv = LANGUAGES[language]
    merged: RunOptions = {**options, "files": {**options.get("files", {}), file_name: code}}
    return command_action(argv, merged)
