"""Facts about processes, so that only the ones meant are ever signalled."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tangram_workers.domain.errors import MissingPartError


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


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """Return a command whose process gets SIGTERM when the thread that starts it ends.

    Raises:
        MissingPartError: If setpriv, which every Debian has, is not there.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise MissingPartError(
            "setpriv is not installed, which ties a fleet's processes to their supervisor. "
            "Install it with `apt-get install util-linux`."
        )
    return [setpriv, "--pdeathsig", "TERM", "--", *command]
