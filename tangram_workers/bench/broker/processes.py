"""Worker processes of a benchmark: started, read from /proc, and stopped to the last one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tangram_workers.domain.errors import TangramError
from tangram_workers.runtime.processes import dying_with_parent

STOP_TIMEOUT_S = 30.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchProcessError(TangramError, RuntimeError):
    """A process of a benchmark ended or did not answer; the message holds the end of its log."""


class BenchProcess:
    """One program with everything that it starts. Use it as a context manager."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_dir: Path,
        environment: Mapping[str, str],
    ) -> None:
        """Prepare it.

        Args:
            name: Of its log file.
            command: Program and arguments; no secrets, since all can read them.
            log_dir: Folder of the log.
            environment: Variables beside those of this process that are not the fleet's.
        """
        self._name = name
        self._command = list(command)
        self._log_path = log_dir / f"{name}.log"
        # A fleet's settings around us are not those of the benchmark.
        own = {name: text for name, text in os.environ.items() if not name.startswith("TANGRAM_")}
        self._environment = {**own, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                dying_with_parent(self._command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_exc: object) -> None:
        process = self._require()
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
        # It leads a session of its own: this reaches what it left behind, and nobody else.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """Raise BenchProcessError if it has ended."""
        if self._require().poll() is not None:
            raise self.failure("ended")

    def failure(self, what: str) -> BenchProcessError:
        """Return an error that tells what happened, with the end of the log."""
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = " / ".join(line.strip() for line in lines[-5:]) or "(empty)"
        return BenchProcessError(
            f"{self._name} of the benchmark {what}. The end of its log: {tail} "
            "Mend what it names and run the benchmark again."
        )

    def cpu_s(self) -> float:
        """Return CPU seconds, user and system, of the process and all that it started."""
        return tree_cpu_s(self._require().pid)

    def _require(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BenchProcessError(f"{self._name} of the benchmark was not started; enter it.")
        return self._process


def tree_cpu_s(root_pid: int) -> float:
    """Return CPU seconds, user and system, that a process and its descendants have used.

    Descendants that have ended count where their parent has waited for them.
    """
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        try:
            stat = (path / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # gone meanwhile
        # The command name in parentheses may itself hold spaces and parentheses.
        fields = stat.rpartition(")")[2].split()
        pid = int(path.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, waiting = 0, [root_pid]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += children.get(pid, [])
    return total / _TICKS_PER_S


def settled_cpu_s(process: BenchProcess, *, settle_s: float = 0.25) -> float:
    """Return its CPU seconds once it had time to acknowledge what it did; alike for all sides."""
    time.sleep(settle_s)
    return process.cpu_s()
