"""One attempt at an action: claim, grant cores, run, answer."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass

from tangram_workers.domain.action import Command
from tangram_workers.domain.errors import BrokerUnavailableError, SandboxError
from tangram_workers.domain.result import ActionResult, Outcome, Timings
from tangram_workers.resources.cores import CoreLedger, grant_environment
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.runtime.settings import Settings
from tangram_workers.sandbox.protocol import SandboxDriver, SandboxReport, SandboxRequest
from tangram_workers.scheduling.estimator import fallback_keys
from tangram_workers.scheduling.grants import core_range
from tangram_workers.stores.redis.actions import ActionStore
from tangram_workers.stores.types import Claim, ClaimRefusal, LeaseState, Republish
from tangram_workers.worker.conclude import conclude_report, conclude_without_start
from tangram_workers.worker.keeper import Hold, Keeper

log = logging.getLogger(__name__)

#: How long a finished action's answer is offered to a broker that is away, in seconds.
COMPLETE_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one attempt."""

    #: The action's answer; None if it has none yet, or if another worker is to give it.
    result: ActionResult | None
    #: Set if the action waits again and needs a message.
    republish: Republish | None = None


class Executor:
    """Runs commands on this node. One action at a time for each thread that calls it."""

    def __init__(
        self,
        settings: Settings,
        store: ActionStore,
        driver: SandboxDriver,
        ledger: CoreLedger,
        keeper: Keeper,
        *,
        worker: str,
        fleet_id: str,
    ) -> None:
        """Make an executor.

        Args:
            settings: Of this process.
            store: Where actions are claimed and completed.
            driver: Runs their programs.
            ledger: Grants this node's cores.
            keeper: Keeps their leases.
            worker: Name of this process in results.
            fleet_id: Keeps this fleet's workspaces from those of others on the same node.
        """
        self._settings = settings
        self._store = store
        self._driver = driver
        self._ledger = ledger
        self._keeper = keeper
        self._worker = worker
        self._fleet_id = fleet_id

    def attempt(self, action_id: str, queue: str) -> Attempt:
        """Run an action if it is still to be run.

        Args:
            action_id: Which action.
            queue: The queue that its message came from.

        Raises:
            BrokerUnavailableError: If the broker does not answer the claim.
        """
        claim = self._store.claim(action_id, queue, holder=self._worker, node=self._settings.node)
        if isinstance(claim, ClaimRefusal):
            log.debug("action %s: not run here, it is %s", action_id, claim.reason)
            if claim.reason == "elsewhere":
                return Attempt(None, republish=claim.republish)
            if claim.reason == "unknown":
                return Attempt(self._answer_unknown(action_id))
            return Attempt(claim.result)
        with CancelToken() as token, self._keeper.holding(claim, token) as hold:
            clock = _StoreClock(claim.claimed_s)
            try:
                result = self._run(claim, token, clock)
            except Exception as error:  # the fleet's fault, whatever it is
                is_expected = isinstance(error, SandboxError)
                log.warning("action %s: %s", action_id, error, exc_info=not is_expected)
                if claim.attempt < self._settings.max_attempts:
                    return Attempt(None, republish=self._store.give_back(claim))
                story = f"{'Its sandbox broke' if is_expected else 'Its worker failed'}: {error}"
                result = self._refuse(claim, Outcome.INFRASTRUCTURE_ERROR, story, clock)
            except BaseException:
                # This process is being stopped: others need not wait for the end of its lease.
                with contextlib.suppress(BrokerUnavailableError):
                    self._store.give_back(claim)
                raise
            answer = self._answer(claim, result, hold)
        workspace_key = self._workspace_key(claim)
        if answer and claim.action.last_of_trajectory and workspace_key is not None:
            # Not before the answer is stored: another try would need the workspace.
            self._driver.close_workspace(workspace_key)
        return Attempt(answer)

    def _run(self, claim: Claim, token: CancelToken, clock: _StoreClock) -> ActionResult:
        command = claim.action.command
        if command is None:
            return self._refuse(
                claim,
                Outcome.INFRASTRUCTURE_ERROR,
                f"Worker {self._worker} runs commands only, not actions of kind "
                f"{claim.action.kind}. Let it serve queue cpu alone.",
                clock,
            )
        fewest, most = core_range(claim.action)
        if fewest > len(self._ledger.core_ids):
            return self._refuse(
                claim,
                Outcome.INFRASTRUCTURE_ERROR,
                f"It needs {fewest} cores at once and node {self._settings.node} has "
                f"{len(self._ledger.core_ids)}. Start a larger node or lower "
                "elasticity.min_units.",
                clock,
            )
        patience_s = claim.queued_s + claim.action.queue_timeout_s - claim.claimed_s
        grant = self._ledger.acquire(
            fewest, most, cancel=token, timeout_s=max(self._settings.lease_s, patience_s)
        )
        if grant is None:
            if token.is_set:
                return self._refuse(
                    claim, Outcome.CANCELLED, "It was cancelled before it started.", clock
                )
            return self._refuse(
                claim,
                Outcome.EXPIRED,
                f"It waited longer than its queue_timeout_s={claim.action.queue_timeout_s:g} for "
                f"{fewest} free cores on node {self._settings.node}.",
                clock,
            )
        with grant:
            started_s = clock.now_s()
            report = self._driver.run(self._request(claim, command, grant.core_ids), token)
        self._observe(claim, report, len(grant.core_ids))
        return conclude_report(
            claim,
            report,
            started_s=started_s,
            finished_s=clock.now_s(),
            cores=len(grant.core_ids),
            worker=self._worker,
            node=self._settings.node,
        )

    def _request(self, claim: Claim, command: Command, core_ids: tuple[int, ...]) -> SandboxRequest:
        return SandboxRequest(
            command=command,
            workspace_key=self._workspace_key(claim),
            core_ids=core_ids,
            memory_bytes=claim.action.resources.memory_bytes,
            disk_bytes=self._settings.sandbox_disk_bytes,
            max_processes=self._settings.sandbox_max_processes,
            timeout_s=claim.action.timeout_s,
            output_limit_bytes=self._settings.output_limit_bytes,
            grant_env=grant_environment(core_ids),
        )

    def _workspace_key(self, claim: Claim) -> str | None:
        if claim.workspace is None:
            return None
        return f"{self._fleet_id}/{claim.action.trajectory_id}/{claim.workspace}"

    def _observe(self, claim: Claim, report: SandboxReport, cores: int) -> None:
        fraction = claim.action.elasticity.speedup.run_time_fraction(cores)
        for key in fallback_keys(claim.action.estimate_key):
            self._keeper.observe(key, report.run_s / fraction)

    def _refuse(
        self, claim: Claim, outcome: Outcome, error: str, clock: _StoreClock
    ) -> ActionResult:
        return conclude_without_start(
            claim,
            outcome,
            error,
            finished_s=clock.now_s(),
            worker=self._worker,
            node=self._settings.node,
        )

    def _answer_unknown(self, action_id: str) -> ActionResult:
        """Return the answer for a plain Celery caller whose action the broker has forgotten."""
        now_s = time.time()
        return ActionResult(
            action_id=action_id,
            outcome=Outcome.INFRASTRUCTURE_ERROR,
            error="The broker has no record of it: it lost its data. Submit it again.",
            timings=Timings(submitted_s=now_s, finished_s=now_s),
            worker=self._worker,
            node=self._settings.node,
        )

    def _answer(self, claim: Claim, result: ActionResult, hold: Hold) -> ActionResult | None:
        """Hand the result to the store; None if the lease was lost and somebody else answers."""
        deadline = time.monotonic() + COMPLETE_PATIENCE_S
        while hold.state is not LeaseState.LOST:
            try:
                if self._store.complete(claim, result):
                    return result
            except BrokerUnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                break
        log.warning("action %s: lease lost, result refused", claim.action_id)
        return None


class _StoreClock:
    """The store's clock, carried on from the claim by this machine's monotonic one."""

    def __init__(self, claimed_s: float) -> None:
        self._offset_s = claimed_s - time.monotonic()

    def now_s(self) -> float:
        return time.monotonic() + self._offset_s
