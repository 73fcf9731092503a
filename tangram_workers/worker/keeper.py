"""Keeps the leases of what this process runs, and hears of cancellations."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tangram_workers.domain.errors import BrokerUnavailableError
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.stores.redis.actions import ActionStore
from tangram_workers.stores.redis.estimates import EstimateStore
from tangram_workers.stores.types import Claim, LeaseState

log = logging.getLogger(__name__)

#: Renewals in the life of one lease; a few may fail before it is lost.
RENEWALS_PER_LEASE = 4
#: Longest time between two looks, so that a cancellation is heard of within a second.
LONGEST_PERIOD_S = 0.5


@dataclass(slots=True)
class Hold:
    """A claim that this process runs right now."""

    claim: Claim
    token: CancelToken
    state: LeaseState = LeaseState.HELD


@dataclass(slots=True)
class Keeper:
    """One thread for each process: renews every lease it holds in one round trip."""

    actions: ActionStore
    estimates: EstimateStore
    lease_s: float
    _holds: dict[tuple[str, int], Hold] = field(default_factory=dict)
    _observed_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wake: threading.Event = field(default_factory=threading.Event)
    _stopping: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start renewing."""
        self._thread = threading.Thread(target=self._run, name="tangram-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing and write down what was observed."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    @contextlib.contextmanager
    def holding(self, claim: Claim, token: CancelToken) -> Iterator[Hold]:
        """Keep a lease while the block runs; the token is set if it is cancelled or lost."""
        hold = Hold(claim, token)
        key = (claim.action_id, claim.generation)
        with self._lock:
            self._holds[key] = hold
        try:
            yield hold
        finally:
            with self._lock:
                del self._holds[key]

    def observe(self, estimate_key: str, run_s: float) -> None:
        """Remember a run time on one unit; it reaches the fleet with the next renewal."""
        with self._lock:
            self._observed_s[estimate_key].append(run_s)

    def _run(self) -> None:
        period_s = min(self.lease_s / RENEWALS_PER_LEASE, LONGEST_PERIOD_S)
        while not self._stopping:
            self._wake.wait(period_s)
            try:
                self._renew()
                self._write_estimates()
            except BrokerUnavailableError as error:
                # Actions go on: the lease may still be there when the broker is back, and if it
                # is not, the result is refused and nothing is applied twice.
                log.warning("leases not renewed: %s", error)
            except Exception:
                # A thread that ends would lose every lease of this process.
                log.exception("leases not renewed this time")

    def _renew(self) -> None:
        with self._lock:
            holds = list(self._holds.values())
        if not holds:
            return
        states = self.actions.renew([hold.claim for hold in holds])
        with self._lock:
            for hold, state in zip(holds, states, strict=True):
                key = (hold.claim.action_id, hold.claim.generation)
                # An action that has just completed is no longer running, which is no loss.
                if state is LeaseState.HELD or self._holds.get(key) is not hold:
                    continue
                if hold.state is not state:
                    log.info("action %s: lease %s", hold.claim.action_id, state)
                hold.state = state
                hold.token.set()

    def _write_estimates(self) -> None:
        with self._lock:
            observed_s, self._observed_s = self._observed_s, defaultdict(list)
        if not observed_s:
            return
        try:
            self.estimates.observe(observed_s)
        except BrokerUnavailableError:
            with self._lock:
                for key, durations_s in observed_s.items():
                    self._observed_s[key][:0] = durations_s
            raise
