"""One keeper for each process and broker: renews its leases, and looks after those of the dead.

Leases belong to the process and not to a channel: a channel ends with its connection, while what it
delivered goes on running. The keeper has connections and a thread of its own, so neither a busy
event loop nor a lost connection ends a lease.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Hashable, Sequence

import redis
from redis.exceptions import RedisError

from tangram_workers.broker.transport.holdings import Holder, Holdings, Lease
from tangram_workers.broker.transport.running import (
    accepted_task_ids,
    running_task_ids,
    runs_in_this_process,
)
from tangram_workers.stores.redis.queues import MessageQueues, holder_name

log = logging.getLogger(__name__)

#: Renewals in the life of one lease; a few may fail before it is lost.
RENEWALS_PER_LEASE = 4
#: Longest time between two looks, in seconds.
LONGEST_PERIOD_S = 0.5
#: An event loop that stands still for this long has wedged, unless a task runs in it: what it
#: holds is left to others.
WEDGED_AFTER_S = 30.0
#: What a channel that is gone had delivered and nobody runs is given back after this long: by
#: then a pool has said what it started.
ORPHAN_GRACE_S = 1.0


class LeaseKeeper:
    """Keeps the leases of one process with one broker."""

    def __init__(
        self,
        queues: MessageQueues,
        client: redis.Redis,
        close_client: Callable[[], None],
        *,
        node: str,
        capacity_units: int,
    ) -> None:
        """Make a keeper; its thread starts when somebody consumes.

        Args:
            queues: Scripts of the broker.
            client: Connections that nobody else closes.
            close_client: Closes them.
            node: Machine.
            capacity_units: Units of this process.
        """
        self.queues = queues
        self.client = client
        self.holdings = Holdings(capacity_units)
        self._close_client = close_client
        self._node = node
        self._pid = os.getpid()
        self._token = secrets.token_hex(4)
        self._count = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._consuming: dict[Holder, tuple[str, ...]] = {}
        self._closed_at: dict[Holder, float] = {}
        self._swept_at = float("-inf")
        #: When an event loop of this process last came round.
        self.progress_at = time.monotonic()
        #: True while the broker does not answer.
        self.is_away = False

    @property
    def is_usable(self) -> bool:
        """False once it is closed, and in a child of a fork: the parent keeps its leases."""
        return not self._is_closed and self._pid == os.getpid()

    # --- for channels ------------------------------------------------------------------------

    def open_holder(self) -> Holder:
        """Return a new holder, for a channel."""
        with self._lock:
            self._count += 1
            worker = f"pid {self._pid}"
            return self.holdings.open(
                holder_name(self._node, worker, f"{self._token}-{self._count}")
            )

    def consume(self, holder: Holder, queues: Sequence[str]) -> None:
        """Say what a channel takes messages from; from the first time on this process sweeps."""
        with self._lock:
            self._consuming[holder] = tuple(queues)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="tangram-leases", daemon=True
                )
                self._thread.start()

    def retire(self, holder: Holder) -> None:
        """Say that a channel takes nothing any more."""
        queues = self._consuming.pop(holder, None)
        if queues is not None and self.is_usable:
            self.queues.retire(self.client, holder.name, queues)

    def close_holder(self, holder: Holder) -> None:
        """Let a channel go; what it delivered and still runs goes on being held."""
        self._closed_at[holder] = time.monotonic()
        holder.is_open = False
        self.give_back(holder, self._without(holder, accepted_task_ids()))
        with contextlib.suppress(RedisError, OSError):
            self.retire(holder)
            self.flush(holder)
        self._wake.set()
        with self._lock:
            if self._thread is None and not self.holdings.holders():
                self._close()

    def flush(self, holder: Holder, *, parked_queues: Sequence[str] = ()) -> None:
        """Tell the server what was acknowledged and what goes back.

        Args:
            holder: Whose.
            parked_queues: Where it waits for more, if it does.

        Raises:
            redis.exceptions.RedisError: If the server does not answer; nothing is forgotten.
        """
        settled = self.holdings.take_settled(holder)
        if settled:
            try:
                self.queues.settle(
                    self.client,
                    holder.name,
                    settled,
                    queues=parked_queues,
                    free_units=self.holdings.free_units if parked_queues else None,
                )
            except (RedisError, OSError):
                self.holdings.return_settled(holder, settled)
                raise
        returned = self.holdings.take_returned(holder)
        try:
            for counts in (True, False):
                refs = [ref for ref, does_count in returned if does_count is counts]
                if refs:
                    self.queues.requeue(self.client, holder.name, refs, counts=counts)
        except (RedisError, OSError):
            self.holdings.keep_returned(holder, returned)
            raise

    def give_back(self, holder: Holder, leases: Sequence[Lease], *, counts: bool = False) -> None:
        """Put messages back into their queues: now, or as soon as the server answers.

        Args:
            holder: Who holds them.
            leases: Which.
            counts: Whether somebody worked on them.
        """
        for lease in leases:
            self.holdings.give_back(holder, lease, counts=counts)
        if leases and not self.is_away:
            with contextlib.suppress(RedisError, OSError):
                self.flush(holder)

    # --- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        period_s = min(self.queues.options.lease_s / RENEWALS_PER_LEASE, LONGEST_PERIOD_S)
        while True:
            self._wake.wait(period_s)
            self._wake.clear()
            with self._lock:
                if not self.holdings.holders():
                    self._close()
                    return
            try:
                for holder in self.holdings.holders():
                    self._look_after(holder)
                self._sweep()
                if self.is_away:
                    # The loop, too, could do nothing until now.
                    self.is_away, self.progress_at = False, time.monotonic()
            except (RedisError, OSError) as error:
                # What is held goes on: the lease may still be there when the broker is back, and
                # if it is not, others run it and what comes late is refused.
                if not self.is_away:
                    log.warning("leases not renewed: %s", error)
                self.is_away = True
            except Exception:
                # A thread that ends would lose every lease of this process.
                log.exception("leases not renewed this time")

    def _close(self) -> None:
        self._thread = None
        self._is_closed = True
        _forget(self)
        self._close_client()

    def _look_after(self, holder: Holder) -> None:
        self.flush(holder)
        if not holder.is_open:
            self._give_back_orphans(holder)
        leases = self._worth_renewing(holder)
        if not leases and holder not in self._consuming:
            return
        held = self.queues.renew(self.client, holder.name, [lease.ref for lease in leases])
        for lease, is_held in zip(leases, held, strict=True):
            # What has just ended is no longer held, which is no loss.
            if not is_held and self.holdings.holds(holder, lease):
                lease.is_lost = True
                log.warning(
                    "task %s: its lease was lost, somebody else may run it too", lease.task_id
                )

    def _worth_renewing(self, holder: Holder) -> list[Lease]:
        stands_still = time.monotonic() - self.progress_at > WEDGED_AFTER_S
        if stands_still and not runs_in_this_process():
            return []
        return [lease for lease in self.holdings.leases(holder) if not lease.is_lost]

    def _give_back_orphans(self, holder: Holder) -> None:
        if time.monotonic() - self._closed_at.get(holder, 0.0) < ORPHAN_GRACE_S:
            return
        self.give_back(holder, self._without(holder, running_task_ids()))
        if not holder.is_needed:
            self._closed_at.pop(holder, None)

    def _without(self, holder: Holder, task_ids: set[str]) -> list[Lease]:
        return [lease for lease in self.holdings.leases(holder) if lease.task_id not in task_ids]

    def _sweep(self) -> None:
        now = time.monotonic()
        if self._consuming and now - self._swept_at >= self.queues.options.sweep_period_s:
            self._swept_at = now
            self.queues.sweep(self.client)

    def give_back_all(self) -> None:
        """Put back whatever this process still holds: it ends."""
        for holder in self.holdings.holders():
            self.give_back(holder, self.holdings.leases(holder))
            with contextlib.suppress(RedisError, OSError):
                self.retire(holder)
                self.flush(holder)


# --- one for each process and broker ---------------------------------------------------------

_keepers: dict[Hashable, LeaseKeeper] = {}
_keepers_lock = threading.Lock()


def keeper_for(place: Hashable, make: Callable[[], LeaseKeeper]) -> LeaseKeeper:
    """Return this process's keeper for a broker; made if there is none yet.

    Args:
        place: Which broker, and which keys and bounds there.
        make: Makes it.
    """
    with _keepers_lock:
        keeper = _keepers.get(place)
        if keeper is None or not keeper.is_usable:
            keeper = _keepers[place] = make()
        return keeper


def _forget(keeper: LeaseKeeper) -> None:
    """Make a new keeper when one is asked for again."""
    with _keepers_lock:
        for place in [place for place, other in _keepers.items() if other is keeper]:
            del _keepers[place]


def _forget_the_parents() -> None:
    """In a child of a fork: its parent's keepers and lock are not its own."""
    global _keepers_lock  # noqa: PLW0603 - the parent may have held it at the fork
    _keepers_lock = threading.Lock()
    _keepers.clear()


os.register_at_fork(after_in_child=_forget_the_parents)


@atexit.register
def _give_back_all() -> None:
    """Tell the broker what this process was done with and what it did not get to."""
    for keeper in list(_keepers.values()):
        if keeper.is_usable:
            keeper.give_back_all()
