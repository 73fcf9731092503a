"""What one process holds: leases, the units they take, and acknowledgements on their way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tangram_workers.stores.redis.queues import MessageRef

#: Units of a process that counts none: only its prefetch limit bounds what it takes.
UNCOUNTED = 1_000_000


@dataclass(slots=True, eq=False)
class Lease:
    """One message that this process holds."""

    ref: MessageRef
    #: Units that it takes from this process's capacity.
    units: int
    #: Celery's id of the task, by which it is known whether it runs; None if it is no task.
    task_id: str | None
    #: True once somebody else may have it: nothing is done for it any more.
    is_lost: bool = False


@dataclass(slots=True, eq=False)
class Holder:
    """The name under which one channel holds leases. It outlives its channel while they last."""

    name: str
    leases: dict[MessageRef, Lease] = field(default_factory=dict)
    #: Acknowledged, and the server does not know it yet.
    settled: deque[MessageRef] = field(default_factory=deque)
    #: To be put back, and the server does not know it yet; True if the delivery counts.
    returned: deque[tuple[MessageRef, bool]] = field(default_factory=deque)
    is_open: bool = True

    @property
    def is_needed(self) -> bool:
        """True while something is to be done in its name."""
        return self.is_open or bool(self.leases or self.settled or self.returned)


class Holdings:
    """Holders of one process and their units. Safe to use from many threads."""

    def __init__(self, capacity_units: int) -> None:
        """Make holdings.

        Args:
            capacity_units: Units of this process when nothing runs.
        """
        self.capacity_units = capacity_units
        self._lock = threading.Lock()
        self._holders: list[Holder] = []
        self._taken_units = 0

    @property
    def free_units(self) -> int:
        """Units that nothing takes; never below zero."""
        return max(0, self.capacity_units - self._taken_units)

    def open(self, name: str) -> Holder:
        """Return a new holder."""
        holder = Holder(name)
        with self._lock:
            self._holders.append(holder)
        return holder

    def holders(self) -> list[Holder]:
        """Return every holder that is open or holds something, and forget the others."""
        with self._lock:
            self._holders = [holder for holder in self._holders if holder.is_needed]
            return list(self._holders)

    def add(self, holder: Holder, leases: Iterable[Lease]) -> None:
        """Hold what was claimed."""
        with self._lock:
            for lease in leases:
                holder.leases[lease.ref] = lease
                self._taken_units += lease.units

    def leases(self, holder: Holder) -> list[Lease]:
        """Return what a holder holds right now."""
        with self._lock:
            return list(holder.leases.values())

    def holds(self, holder: Holder, lease: Lease) -> bool:
        """Tell whether it is still held."""
        with self._lock:
            return holder.leases.get(lease.ref) is lease

    def settle(self, holder: Holder, lease: Lease) -> None:
        """Hold something no more: it is to be acknowledged."""
        with self._lock:
            if self._release(holder, lease):
                holder.settled.append(lease.ref)

    def give_back(self, holder: Holder, lease: Lease, *, counts: bool) -> None:
        """Hold something no more: it is to be put back."""
        with self._lock:
            if self._release(holder, lease):
                holder.returned.append((lease.ref, counts))

    def _release(self, holder: Holder, lease: Lease) -> bool:
        if holder.leases.pop(lease.ref, None) is not lease:
            return False
        self._taken_units -= lease.units
        return True

    def take_settled(self, holder: Holder) -> list[MessageRef]:
        """Return the acknowledgements that the server must hear of; the caller sees to it."""
        with self._lock:
            settled = list(holder.settled)
            holder.settled.clear()
            return settled

    def return_settled(self, holder: Holder, settled: Iterable[MessageRef]) -> None:
        """Keep acknowledgements that may not have reached the server; twice does no harm."""
        with self._lock:
            holder.settled.extendleft(reversed(list(settled)))

    def take_returned(self, holder: Holder) -> list[tuple[MessageRef, bool]]:
        """Return what the server must be given back; the caller sees to it."""
        with self._lock:
            returned = list(holder.returned)
            holder.returned.clear()
            return returned

    def keep_returned(self, holder: Holder, returned: Iterable[tuple[MessageRef, bool]]) -> None:
        """Keep what may not have reached the server; twice does no harm."""
        with self._lock:
            holder.returned.extendleft(reversed(list(returned)))
