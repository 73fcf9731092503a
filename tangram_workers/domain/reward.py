"""How a reward is read from what a command did."""

from __future__ import annotations

from dataclasses import dataclass

from tangram_workers.domain.checks import require_text
from tangram_workers.domain.errors import InvalidActionError

MAX_LINE_LENGTH = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardRule:
    """1.0 if the command exits with 0 and, where `last_line` is set, prints that line last.

    A program that leaves early with exit code 0 has proved nothing: a test harness that is told a
    fresh `last_line` and prints it only after its last check closes that hole.
    """

    #: Line that must be the last one on standard output; None asks for exit code 0 alone.
    last_line: str | None = None

    def __post_init__(self) -> None:
        if self.last_line is not None:
            last_line = require_text(
                "reward_rule.last_line", self.last_line, maximum_length=MAX_LINE_LENGTH
            )
            if "\n" in last_line:
                raise InvalidActionError(
                    "reward_rule.last_line",
                    last_line,
                    "no line holds a line break, so it would never match; give one line.",
                )
            object.__setattr__(self, "last_line", last_line)


def command_reward(rule: RewardRule, exit_code: int | None, stdout: str) -> float:
    """Return the reward of a command that ran to an end of its own making or was stopped.

    Args:
        rule: What counts as success.
        exit_code: The program's exit code; None if it was killed.
        stdout: What it printed, as far as kept.
    """
    if exit_code != 0:
        return 0.0
    if rule.last_line is None:
        return 1.0
    lines = stdout.rstrip("\n").rsplit("\n", 1)
    return 1.0 if lines[-1] == rule.last_line else 0.0
