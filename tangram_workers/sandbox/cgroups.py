"""One cgroup per action: its memory and process bounds, its OOM kills, CPU time and peak.

A process enters by itself, by writing 0 to each of `ActionCgroup.entry_files` from a shell that is
about to become the action. On cgroup v1 that is done through `tasks`: the kernel moves a single
thread, the writer itself, without the machine-wide lock that a write to `cgroup.procs` takes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tangram_workers.sandbox import owner
from tangram_workers.sandbox.cgroup_mounts import (
    CgroupProbe,
    find_cgroups,
    read_number,
    read_text,
    write_text,
)

__all__ = ["ActionCgroup", "CgroupFactory", "CgroupProbe", "CgroupUsage", "probe"]

_PREFIX = "tangram-"
#: Below this not even a shell starts, and the sandbox would be blamed for the action's limit.
_LEAST_MEMORY_BYTES = 16 * 1024 * 1024
#: Processes that the sandbox itself needs beside the action's.
_OWN_PROCESSES = 4
_PAUSE_S = 0.0005


@dataclass(frozen=True, kw_only=True, slots=True)
class CgroupUsage:
    """What the processes of one cgroup used together."""

    oom_kills: int
    cpu_s: float
    #: 0 where the system cannot tell.
    peak_memory_bytes: int


class ActionCgroup:
    """The cgroup of one action; on v1 that is one folder per controller."""

    def __init__(self, version: str, folders: Mapping[str, Path]) -> None:
        self._version = version
        self._folders = dict(folders)
        name = "cgroup.procs" if version == "v2" else "tasks"
        #: Files that a process writes 0 to in order to enter.
        self.entry_files = tuple(str(folder / name) for folder in self._distinct_folders())

    def usage(self) -> CgroupUsage:
        """Return what was used so far; zeros where the system does not tell."""
        memory, cpu = self._folders.get("memory"), self._folders.get("cpuacct")
        if self._version == "v2":
            folder = self._folders["memory"]
            return CgroupUsage(
                oom_kills=_read_field(folder / "memory.events", "oom_kill"),
                cpu_s=_read_field(folder / "cpu.stat", "usage_usec") / 1e6,
                peak_memory_bytes=read_number(folder / "memory.peak"),
            )
        return CgroupUsage(
            oom_kills=_read_field(memory / "memory.oom_control", "oom_kill") if memory else 0,
            cpu_s=read_number(cpu / "cpuacct.usage") / 1e9 if cpu else 0.0,
            peak_memory_bytes=(read_number(memory / "memory.max_usage_in_bytes") if memory else 0),
        )

    def kill(self) -> None:
        """Send SIGKILL to every process inside, once."""
        folder = self._distinct_folders()[0]
        if self._version == "v2" and write_text(folder / "cgroup.kill", "1"):
            return
        for each in self._distinct_folders():
            for line in read_text(each / "cgroup.procs").split():
                # 0 stands for a process of another PID namespace; kill(0) would be ourselves.
                if int(line) > 0:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(int(line), signal.SIGKILL)

    def close(self, *, timeout_s: float) -> bool:
        """Kill what is inside until nothing is, then remove the cgroup.

        Args:
            timeout_s: Bound on the wait for killed processes to be gone.

        Returns:
            False if something is still inside; the cgroup then stays.
        """
        deadline_s = time.monotonic() + timeout_s
        for folder in self._distinct_folders():
            # Removing is the test for emptiness: the kernel refuses while a process is inside.
            while not _remove(folder):
                self.kill()
                if time.monotonic() > deadline_s:
                    return False
                time.sleep(_PAUSE_S)
        return True

    def _distinct_folders(self) -> list[Path]:
        return list(dict.fromkeys(self._folders.values()))


class CgroupFactory:
    """Makes the cgroups of actions where this process may; safe to use from many threads."""

    def __init__(self) -> None:
        self.probe, self._parents = find_cgroups()
        self._count = itertools.count()

    @property
    def limits_memory(self) -> bool:
        """True if actions get a memory limit of their own."""
        return "memory" in self._parents

    @property
    def limits_processes(self) -> bool:
        """True if actions get a limit of processes of their own."""
        return "pids" in self._parents

    def create(self, *, memory_bytes: int, max_processes: int) -> ActionCgroup | None:
        """Make a cgroup with limits; None where cgroups cannot be used.

        Args:
            memory_bytes: Limit of memory and swap together; at least 16 MiB are given.
            max_processes: Limit of processes and threads.

        Raises:
            OSError: If the system refuses what it allowed when this factory was made.
        """
        if not self._parents:
            return None
        # The owner's name lets any later worker remove what a dead one left.
        name = f"{_PREFIX}{owner.owner_id()}.{next(self._count)}"
        memory_bytes = max(memory_bytes, _LEAST_MEMORY_BYTES)
        folders = {controller: parent / name for controller, parent in self._parents.items()}
        version = self.probe.version
        setters = _v2_limits if version == "v2" else _v1_limits
        made: list[Path] = []
        try:
            for folder in dict.fromkeys(folders.values()):
                folder.mkdir()
                made.append(folder)
            setters(folders, memory_bytes, max_processes + _OWN_PROCESSES)
        except OSError:
            for folder in made:
                _remove(folder)
            raise
        return ActionCgroup(version, folders)

    def sweep(self) -> int:
        """Kill and remove the cgroups of dead workers; return how many actions' cgroups went."""
        found: dict[str, dict[str, Path]] = {}
        for controller, parent in self._parents.items():
            with contextlib.suppress(OSError):
                for entry in parent.iterdir():
                    if entry.name.startswith(_PREFIX):
                        found.setdefault(entry.name, {})[controller] = entry
        removed = 0
        for name, folders in found.items():
            if owner.is_dead(name.removeprefix(_PREFIX).rpartition(".")[0]):
                removed += ActionCgroup(self.probe.version, folders).close(timeout_s=2.0)
        return removed


def probe() -> CgroupProbe:
    """Tell which cgroups actions of this process get, and if none, why."""
    return find_cgroups()[0]


_Limits = Callable[[Mapping[str, Path], int, int], None]


def _v1_limits(folders: Mapping[str, Path], memory_bytes: int, max_processes: int) -> None:
    memory, pids = folders.get("memory"), folders.get("pids")
    if memory is not None:
        (memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
        # Memory and swap together; absent where the kernel does not account swap.
        write_text(memory / "memory.memsw.limit_in_bytes", str(memory_bytes))
    if pids is not None:
        (pids / "pids.max").write_text(str(max_processes))


def _v2_limits(folders: Mapping[str, Path], memory_bytes: int, max_processes: int) -> None:
    folder = folders["memory"]
    (folder / "memory.max").write_text(str(memory_bytes))
    write_text(folder / "memory.swap.max", "0")
    (folder / "pids.max").write_text(str(max_processes))


def _read_field(path: Path, name: str) -> int:
    """Return the number behind `name` in a file of `name number` lines; 0 if it has none."""
    for line in read_text(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _remove(folder: Path) -> bool:
    """Remove a cgroup; False if it is still in use."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
