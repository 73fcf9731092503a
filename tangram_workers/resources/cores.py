"""Whole cores for one action each, on a node that several worker processes share.

    <directory>/cores/<id>          locked by whoever holds the core
    <directory>/line/<number>       locked by whoever waits, in order of arrival
    <directory>/turnstile           locked for the moment of looking and taking

All locks are flocks: the kernel gives them back when their holder dies, however it dies. A grant
is taken in one go under the turnstile, so nobody ever holds some cores while waiting for others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tangram_workers.domain.errors import InputError, SettingsError
from tangram_workers.resources.inotify import BellShelf, FolderBell
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.runtime.settings_checks import CPUS_VARIABLE

#: Bound on how late we see what did not ring: a killed holder's lock is freed just after its file
#: is closed, so the bell may come a moment too early.
_LONGEST_PAUSE_S = 0.02
#: The same without a bell. Fifty looks of 20 us each per 100 ms are 1 % of a core.
_PAUSE_WITHOUT_BELL_S = 0.002
_FILE_FLAGS = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


class CoreGrant:
    """Cores that nobody else on this node has; a context manager that gives them back."""

    def __init__(self, locks: dict[int, int], bell_fd: int) -> None:
        self._locks = locks
        #: Open for writing, so that its closing rings, be it by us or by the kernel.
        self._bell_fd = bell_fd
        #: Ids of the granted cores, ascending.
        self.core_ids: tuple[int, ...] = tuple(sorted(locks))

    def release(self) -> None:
        """Give the cores back; more than once is fine."""
        locks, self._locks = self._locks, {}
        if locks:
            _unlock(locks)
            os.close(self._bell_fd)  # last: whoever hears it must find the cores free

    def __enter__(self) -> CoreGrant:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


class CoreLedger:
    """Who has which core of this node; safe to use from many threads and processes."""

    def __init__(self, directory: Path, core_ids: Sequence[int]) -> None:
        """Open the ledger.

        Args:
            directory: Folder on a local file system, the same for all workers of the node.
            core_ids: Cores to grant.
        """
        if not core_ids or len(set(core_ids)) != len(core_ids):
            raise InputError(f"core_ids={list(core_ids)} is not valid: give distinct core ids.")
        self.core_ids = tuple(sorted(core_ids))
        self._cores = directory / "cores"
        self._line = directory / "line"
        self._turnstile = directory / "turnstile"
        for folder in (self._cores, self._line):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._bells = BellShelf((self._cores, self._line))

    def close(self) -> None:
        """Give descriptors back; grants stay with their holders."""
        self._bells.close()

    def acquire(
        self, minimum: int, maximum: int, *, cancel: CancelToken, timeout_s: float
    ) -> CoreGrant | None:
        """Wait for cores; requests of all processes are served in order of arrival.

        Args:
            minimum: Cores without which there is no grant.
            maximum: Most cores to take, if more than the minimum are free.
            cancel: Ends the wait.
            timeout_s: Bound on the wait; 0 takes what is free now or nothing.

        Returns:
            The grant; None if it timed out or was cancelled.

        Raises:
            InputError: If this node could never grant it.
        """
        if not 1 <= minimum <= maximum:
            raise InputError(
                f"minimum={minimum}, maximum={maximum} is not valid: give 1 <= minimum <= maximum."
            )
        if minimum > len(self.core_ids):
            raise InputError(
                f"minimum={minimum} cores can never be granted: this node grants "
                f"{len(self.core_ids)}. Ask for fewer, or raise TANGRAM_CORES."
            )
        deadline_s = time.monotonic() + timeout_s
        ticket = _Ticket(self._line)
        try:
            if cancel.is_set:
                return None
            grant = self._try(ticket, minimum, maximum, will_wait=timeout_s > 0)
            if grant is not None or timeout_s <= 0:
                return grant
            with self._bells.borrow() as bell:
                # The first look is anew: something may have happened before the bell listened.
                while not cancel.is_set and time.monotonic() < deadline_s:
                    if bell is not None:
                        bell.silence()  # before looking: what happens from here on rings again
                    grant = self._try(ticket, minimum, maximum, will_wait=True)
                    if grant is not None:
                        return grant
                    _pause(bell, cancel, deadline_s - time.monotonic())
            return None
        finally:
            ticket.give_up()

    def count_free(self) -> int:
        """Return how many cores nobody has; only a hint, since it may change at once."""
        with self._passing():
            locks = self._take(len(self.core_ids))
            _unlock(locks)
            return len(locks)

    def _try(
        self, ticket: _Ticket, minimum: int, maximum: int, *, will_wait: bool
    ) -> CoreGrant | None:
        """Take cores if it is this ticket's turn and enough are free; else take a place in line."""
        with self._passing():
            if ticket.is_first():
                locks = self._take(maximum)
                if len(locks) >= minimum:
                    first = self._cores / str(min(locks))
                    return CoreGrant(locks, os.open(first, os.O_WRONLY | os.O_CLOEXEC))
                _unlock(locks)
            if will_wait:
                ticket.take_place()
            return None

    def _take(self, most: int) -> dict[int, int]:
        """Lock up to `most` free cores; return core id -> descriptor."""
        locks: dict[int, int] = {}
        for core_id in self.core_ids:
            if len(locks) == most:
                break
            fd = _try_lock(self._cores / str(core_id))
            if fd is not None:
                locks[core_id] = fd
        return locks

    @contextlib.contextmanager
    def _passing(self) -> Iterator[None]:
        """Be the only one in this node who looks and takes; held for microseconds."""
        fd = os.open(self._turnstile, _FILE_FLAGS, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


class _Ticket:
    """A place in line. Made and compared under the turnstile only; given up anywhere."""

    def __init__(self, line: Path) -> None:
        self._line = line
        self._fd = -1
        self._number: int | None = None

    def is_first(self) -> bool:
        """Tell whether nobody alive came earlier; the tickets of the dead are removed."""
        for number in sorted(self._numbers()):
            if number == self._number:
                return True
            path = self._line / str(number)
            fd = _try_lock(path, create=False)
            if fd is None:
                if path.exists():
                    return False
                continue  # given up just now
            path.unlink(missing_ok=True)
            os.close(fd)
        return True

    def take_place(self) -> None:
        """Take the last place, unless we already have one."""
        if self._number is None:
            number = max(self._numbers(), default=0) + 1
            self._fd = os.open(self._line / str(number), _FILE_FLAGS, 0o600)
            self._number = number
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def give_up(self) -> None:
        """Leave the line, with or without cores."""
        if self._number is not None:
            # Removed first: unlocked but there, it would pass for a dead one's.
            (self._line / str(self._number)).unlink(missing_ok=True)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)
            self._number = None

    def _numbers(self) -> list[int]:
        return [int(path.name) for path in self._line.iterdir() if path.name.isdecimal()]


def _unlock(locks: Mapping[int, int]) -> None:
    for fd in locks.values():
        # Not by closing alone: a fork meanwhile may have kept a copy of the descriptor.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _pause(bell: FolderBell | None, cancel: CancelToken, left_s: float) -> None:
    """Wait until something happened, or might have without ringing."""
    poller = select.poll()
    poller.register(cancel.fileno(), select.POLLIN)
    longest_s = _PAUSE_WITHOUT_BELL_S
    if bell is not None:
        poller.register(bell.fileno(), select.POLLIN)
        longest_s = _LONGEST_PAUSE_S
    poller.poll(max(1.0, min(left_s, longest_s) * 1000))


def _try_lock(path: Path, *, create: bool = True) -> int | None:
    """Return a descriptor that locks a file; None if another one does, or there is no file."""
    # For reading: closing it after a vain attempt must not ring, or those who wait would wake
    # each other for ever.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        fd = os.open(path, flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def usable_cores(limit: int) -> tuple[int, ...]:
    """Return the ids of the cores that actions may use.

    Args:
        limit: How many; 0 is all that this process may run on.

    Raises:
        SettingsError: If there are fewer.
    """
    own = sorted(os.sched_getaffinity(0))
    if limit > len(own):
        raise SettingsError(
            f"TANGRAM_CORES={limit} is not valid: this process may run on {len(own)} cores. "
            f"Give at most {len(own)}, or 0 for all of them."
        )
    return tuple(own[: limit or len(own)])


def grant_environment(core_ids: Sequence[int]) -> dict[str, str]:
    """Return the variables that make common tools use the granted cores, all and no more."""
    count = str(len(core_ids))
    return {
        CPUS_VARIABLE: count,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "NUMEXPR_NUM_THREADS": count,
        "NUMBA_NUM_THREADS": count,
        "GOMAXPROCS": count,
        "MAKEFLAGS": f"-j{count}",
        "CARGO_BUILD_JOBS": count,
        "PYTEST_XDIST_AUTO_NUM_WORKERS": count,
        # Threads that wait must not spin on cores that the action pays for.
        "OMP_WAIT_POLICY": "passive",
    }
