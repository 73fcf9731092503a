"""Names that say which process owns a thing, so that the things of a dead one can be told."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path


def owner_id() -> str:
    """Return a name of this process that no other process of the machine ever had.

    A process id alone is used again; with the start time it is not. The PID namespace is part of
    it, since another namespace's process ids mean nothing here.
    """
    return _owner_id_of(os.getpid())  # asked anew each time: a fork changes the answer


@lru_cache(maxsize=8)
def _owner_id_of(pid: int) -> str:
    return f"{_pid_namespace()}.{pid}.{_start_ticks(pid)}"


def is_dead(owner: str) -> bool:
    """Tell whether the process of an `owner_id()` is surely gone.

    Args:
        owner: What `owner_id()` returned in that process. Another PID namespace's owner, or a
            text of another form, is never called dead.
    """
    try:
        namespace, pid, start_ticks = (int(part) for part in owner.split("."))
    except ValueError:
        return False
    return namespace == _pid_namespace() and _start_ticks(pid) != start_ticks


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_ticks(pid: int) -> int:
    """Return a process's start in clock ticks since boot; 0 if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    # The program's name may hold spaces and brackets; the start is the 20th field behind it.
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
