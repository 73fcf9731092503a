"""The command that runs a problem's tests on what a trajectory wrote."""

from __future__ import annotations

from functools import cache
from importlib import resources

from tangram_workers.bench.demo.problems import Problem
from tangram_workers.domain.action import Command
from tangram_workers.domain.reward import RewardRule

#: The file that a trajectory writes its answer to, in its workspace.
SOLUTION_FILE = "solution.py"
_HARNESS_FILE = "check.py"


def checking_command(problem: Problem, nonce: str) -> Command:
    """Return the command that tests the workspace's solution file.

    Args:
        problem: Whose tests.
        nonce: Fresh text without line breaks that no candidate can know beforehand.
    """
    # Tests that draw random inputs draw the same ones each time.
    seed = "import random\nrandom.seed(0)\n" if "random" in problem.tests else ""
    return Command(
        # -I and -S leave out the reading of site-packages, which would double the start-up.
        argv=("python3", "-I", "-S", _HARNESS_FILE, problem.entry_point),
        files={
            _HARNESS_FILE: harness_source(),
            # A prompt ends with a docstring, which makes it a whole function by itself.
            "helpers.py": problem.prompt,
            "tests.py": seed + problem.tests,
        },
        stdin=nonce,
    )


def checking_rule(nonce: str) -> RewardRule:
    """Return the rule that pays for nothing but the last check."""
    return RewardRule(last_line=nonce)


@cache
def harness_source() -> str:
    """Return the source of the program that runs inside the sandbox."""
    return resources.files(__package__).joinpath("harness_program.py").read_text(encoding="utf-8")
