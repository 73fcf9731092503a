"""From a sandbox's report to an outcome: no two endings look alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tangram_workers.domain.action import Action, Command
from tangram_workers.domain.result import ActionResult, Outcome
from tangram_workers.domain.reward import RewardRule
from tangram_workers.sandbox.protocol import Ending, SandboxReport
from tangram_workers.stores.types import Claim
from tangram_workers.worker.conclude import conclude_report, conclude_without_start

ACTION = Action(command=Command(argv=("x",)), reward_rule=RewardRule(), timeout_s=7)
CLAIM = Claim(
    action_id="a1",
    queue="cpu",
    action=ACTION,
    attempt=2,
    generation=3,
    submitted_s=100.0,
    queued_s=100.0,
    claimed_s=101.0,
)
REPORT = SandboxReport(
    ending=Ending.EXITED,
    exit_code=0,
    stdout=b"out",
    stderr=b"err",
    stdout_truncated=True,
    stderr_truncated=False,
    run_s=2.0,
    cpu_s=1.5,
    peak_memory_bytes=4096,
)


def conclude(**changes: object) -> ActionResult:
    return conclude_report(
        CLAIM,
        replace(REPORT, **changes),  # type: ignore[arg-type]  # fields of the report
        started_s=102.0,
        finished_s=104.0,
        cores=2,
        worker="w1",
        node="n1",
    )


@pytest.mark.parametrize(
    ("changes", "outcome", "words", "reward"),
    [
        ({}, Outcome.SUCCEEDED, None, 1.0),
        ({"exit_code": 3}, Outcome.FAILED, "exit code 3", 0.0),
        ({"exit_code": 139}, Outcome.FAILED, "exit code 139", 0.0),
        ({"ending": Ending.TIMED_OUT, "exit_code": None}, Outcome.TIMED_OUT, "timeout_s=7", 0.0),
        ({"ending": Ending.OOM, "exit_code": None}, Outcome.OOM, "memory_bytes", 0.0),
        ({"ending": Ending.CANCELLED, "exit_code": None}, Outcome.CANCELLED, "cancelled", None),
    ],
)
def test_each_ending_is_its_own_outcome(
    changes: dict[str, object], outcome: Outcome, words: str | None, reward: float | None
) -> None:
    result = conclude(**changes)
    assert result.outcome is outcome
    assert result.reward == reward
    if words is None:
        assert result.error is None
    else:
        assert words in (result.error or "")


def test_everything_the_sandbox_saw_is_in_the_result() -> None:
    result = conclude()
    assert (result.stdout, result.stderr) == ("out", "err")
    assert (result.stdout_truncated, result.stderr_truncated) == (True, False)
    assert (result.usage.cpu_s, result.usage.peak_memory_bytes, result.usage.cores) == (
        1.5,
        4096,
        2,
    )
    assert (result.attempt, result.worker, result.node) == (2, "w1", "n1")
    assert result.timings.queue_wait_s == 2.0
    assert result.timings.act_s == 4.0


def test_the_fleets_own_fault_is_never_a_reward_of_zero() -> None:
    result = conclude_without_start(
        CLAIM, Outcome.INFRASTRUCTURE_ERROR, "broken", finished_s=105.0, worker="w", node="n"
    )
    assert result.reward is None
    assert result.timings.started_s is None
