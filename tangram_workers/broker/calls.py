"""Between Celery calls and actions: task names, what a call means, what a message shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from tangram_workers.domain.action import Action, ActionKind, ApiCall, Command, Score
from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.wire.codec import action_from_fields

TASK_PREFIX = "tangram."
#: Characters of a command line that Flower shows.
SHOWN_LENGTH = 80

_PARTS: Mapping[ActionKind, tuple[type, str]] = {
    ActionKind.COMMAND: (Command, "argv"),
    ActionKind.SCORE: (Score, "model"),
    ActionKind.API_CALL: (ApiCall, "provider"),
}


_KINDS: Mapping[str, ActionKind] = {TASK_PREFIX + kind: kind for kind in ActionKind}


def task_name(kind: ActionKind) -> str:
    """Return the Celery task that runs actions of a kind."""
    return TASK_PREFIX + kind


def kind_of_task(name: str) -> ActionKind | None:
    """Return the kind of action that a Celery task runs; None for a task of somebody else's."""
    return _KINDS.get(name)


def action_from_call(
    kind: ActionKind, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Action:
    """Return the action that a plain Celery call asks for.

    Keyword arguments are the fields of the command (or score, or API call) and of the action, side
    by side: `run_command.delay(argv=["python3", "-V"], timeout_s=5)`. The first field may be given
    by position.

    Raises:
        InvalidActionError: If an argument is unknown or holds a wrong value.
    """
    part_type, first = _PARTS[kind]
    given = dict(kwargs or {})
    positional = list(args or ())
    if len(positional) > 1:
        raise InvalidActionError(
            "args", positional, f"only {first} may be given by position; name the others."
        )
    if positional:
        if first in given:
            raise InvalidActionError(first, positional[0], "it is given twice.")
        given[first] = positional[0]
    part_names = {field.name for field in fields(part_type)}
    part = {name: given.pop(name) for name in list(given) if name in part_names}
    return action_from_fields({**given, str(kind): part})


#: Options of a Celery call that an action cannot honour -> what to do instead.
_REFUSED_OPTIONS: Mapping[str, str] = {
    "queue": "the router chooses the queue; leave it out.",
    "exchange": "the router chooses the queue; leave it out.",
    "routing_key": "the router chooses the queue; leave it out.",
    "priority": "the router chooses the order; leave it out.",
    "countdown": "an action runs as soon as it can; submit it later instead.",
    "eta": "an action runs as soon as it can; submit it later instead.",
    "expires": "give the action's queue_timeout_s instead.",
    "time_limit": "give the action's timeout_s instead.",
    "soft_time_limit": "give the action's timeout_s instead.",
    "link": "wait for the result and submit what follows.",
    "link_error": "wait for the result and submit what follows.",
    "chain": "wait for the result and submit what follows.",
    "chord": "wait for the results and submit what follows.",
}


def refuse_options(options: Mapping[str, Any]) -> None:
    """Refuse options of a Celery call that would be ignored.

    Raises:
        InvalidActionError: It names the option and what to do instead.
    """
    for name, mend in _REFUSED_OPTIONS.items():
        if options.get(name):
            raise InvalidActionError(name, options[name], mend)


def message_kwargs(action_id: str, action: Action) -> dict[str, Any]:
    """Return what the message of an action carries: who it is, never its payload.

    The record in the store has the action itself; this is what operators see in Flower.
    """
    shown: dict[str, Any] = {"action_id": action_id, "kind": str(action.kind)}
    for name in ("trajectory_id", "step_id", "group_id"):
        if getattr(action, name) is not None:
            shown[name] = getattr(action, name)
    if action.command is not None:
        line = shlex.join(action.command.argv[:4])
        shown["program"] = line if len(line) <= SHOWN_LENGTH else line[: SHOWN_LENGTH - 1] + "…"
    elif action.score is not None:
        shown["samples"] = len(action.score.responses)
    return shown
