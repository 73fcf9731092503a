"""A sample as a trajectory: write the file, look at it, run the tests. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tangram_workers.bench.demo.harness import SOLUTION_FILE, checking_command, checking_rule
from tangram_workers.bench.demo.samples import Sample, SampleKind
from tangram_workers.domain.action import Action, Command
from tangram_workers.domain.resources import MIB, ResourceVector

#: Far above what any action here takes, so that only a program that hangs can use it up.
RUN_TIMEOUT_S = 30.0
#: For the endless loops, which are known beforehand to use up theirs.
LOOP_TIMEOUT_S = 1.0
_RESOURCES = ResourceVector(cpu_milli=1000, memory_bytes=256 * MIB)


class Stage(enum.StrEnum):
    """The actions of a trajectory, in order."""

    WRITE = "write"
    LOOK = "look"
    TEST = "test"


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoTrajectory:
    """One episode, ready to be run."""

    sample: Sample
    #: One action for each stage, in order.
    actions: tuple[Action, ...]
    #: Seconds of LLM time before each action.
    gaps_s: tuple[float, ...]


def make_trajectory(
    sample: Sample, *, step_id: str, nonce: str, gaps_s: tuple[float, ...]
) -> DemoTrajectory:
    """Return a sample's trajectory.

    Args:
        sample: What the model "answered".
        step_id: Names the training step; unlike any other of this fleet, since workspaces are
            found by the trajectory's id.
        nonce: What the tests print at their end; fresh for each trajectory.
        gaps_s: Seconds of LLM time before each action.
    """
    is_loop = sample.kind is SampleKind.ENDLESS_LOOP
    commands = {
        Stage.WRITE: Command(argv=("wc", "-l", SOLUTION_FILE), files={SOLUTION_FILE: sample.code}),
        Stage.LOOK: Command(argv=("cat", SOLUTION_FILE)),
        Stage.TEST: checking_command(sample.problem, nonce),
    }
    if len(gaps_s) != len(commands):
        raise ValueError(f"{len(gaps_s)} gaps for {len(commands)} actions; give one for each.")
    actions = tuple(
        Action(
            command=command,
            resources=_RESOURCES,
            trajectory_id=f"{step_id}.{sample.sample_id}",
            step_id=step_id,
            group_id=f"{step_id}.{sample.problem.task_id}",
            environment_key=f"human-eval.{stage}",
            last_of_trajectory=stage is Stage.TEST,
            reward_rule=checking_rule(nonce) if stage is Stage.TEST else None,
            timeout_s=LOOP_TIMEOUT_S if is_loop and stage is Stage.TEST else RUN_TIMEOUT_S,
        )
        for stage, command in commands.items()
    )
    return DemoTrajectory(sample=sample, actions=actions, gaps_s=gaps_s)
