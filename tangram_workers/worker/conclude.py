"""From what a sandbox reports to the one answer of an action: pure."""

from __future__ import annotations

from tangram_workers.domain.action import Action
from tangram_workers.domain.result import ActionResult, Outcome, Timings, Usage
from tangram_workers.domain.reward import command_reward
from tangram_workers.sandbox.protocol import Ending, SandboxReport
from tangram_workers.stores.types import Claim

#: Outcomes after which a reward rule says something about the action itself.
_JUDGED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT, Outcome.OOM})


def conclude_report(
    claim: Claim,
    report: SandboxReport,
    *,
    started_s: float,
    finished_s: float,
    cores: int,
    worker: str,
    node: str,
) -> ActionResult:
    """Return the result of a command that a sandbox ran to an end.

    Args:
        claim: The lease under which it ran.
        report: What the sandbox saw.
        started_s: When the program started, by the store's clock.
        finished_s: When everything of it was gone, by the store's clock.
        cores: Cores granted.
        worker: Process that ran it.
        node: Machine that ran it.
    """
    action = claim.action
    outcome, error = _outcome(action, report)
    stdout = _text(report.stdout)
    reward = None
    if action.reward_rule is not None and outcome in _JUDGED:
        reward = command_reward(action.reward_rule, report.exit_code, stdout)
    return ActionResult(
        action_id=claim.action_id,
        outcome=outcome,
        error=error,
        exit_code=report.exit_code,
        stdout=stdout,
        stderr=_text(report.stderr),
        stdout_truncated=report.stdout_truncated,
        stderr_truncated=report.stderr_truncated,
        reward=reward,
        timings=Timings(submitted_s=claim.submitted_s, started_s=started_s, finished_s=finished_s),
        usage=Usage(cpu_s=report.cpu_s, peak_memory_bytes=report.peak_memory_bytes, cores=cores),
        attempt=claim.attempt,
        worker=worker,
        node=node,
    )


def conclude_without_start(
    claim: Claim, outcome: Outcome, error: str, *, finished_s: float, worker: str, node: str
) -> ActionResult:
    """Return the result of a claimed action whose program never started."""
    return ActionResult(
        action_id=claim.action_id,
        outcome=outcome,
        error=error,
        timings=Timings(submitted_s=claim.submitted_s, finished_s=finished_s),
        attempt=claim.attempt,
        worker=worker,
        node=node,
    )


def _outcome(action: Action, report: SandboxReport) -> tuple[Outcome, str | None]:
    if report.ending is Ending.TIMED_OUT:
        return Outcome.TIMED_OUT, (
            f"It ran longer than its timeout_s={action.timeout_s:g} and was killed."
        )
    if report.ending is Ending.CANCELLED:
        return Outcome.CANCELLED, "It was cancelled while it ran."
    if report.ending is Ending.OOM:
        return Outcome.OOM, (
            f"It needed more than its resources.memory_bytes={action.resources.memory_bytes}."
        )
    if report.exit_code == 0:
        return Outcome.SUCCEEDED, None
    return Outcome.FAILED, f"Its program ended with exit code {report.exit_code}."


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
