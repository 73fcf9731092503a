"""Facts about processes, so that only the ones meant are ever signalled."""

from __future__ import annotations

import ctypes
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Opened here and not in the child: between fork and exec no library may be loaded.
_LIBC = ctypes.CDLL(None, use_errno=True)


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot.

    Raises:
        ProcessLookupError: If there is no such process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise ProcessLookupError(pid) from None
    # The command name in parentheses may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(pid)
    return int(fields[19])


def is_same_process(pid: int, ticks: int) -> bool:
    """Return whether the process that had this pid and start time still runs."""
    try:
        return start_ticks(pid) == ticks
    except ProcessLookupError:
        return False


def die_with_parent() -> None:
    """Ask the kernel to send SIGTERM to this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
