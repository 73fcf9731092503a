"""The driver that does not isolate: a plain process with limits. For trusted code only."""

from __future__ import annotations

import itertools
import os
import signal
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from tangram_workers.domain.errors import SandboxError
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.runtime.settings_checks import MARK_VARIABLE
from tangram_workers.sandbox import owner, scripts
from tangram_workers.sandbox.cgroups import ActionCgroup, CgroupFactory, CgroupUsage
from tangram_workers.sandbox.protocol import Ending, SandboxReport, SandboxRequest
from tangram_workers.sandbox.pump import (
    Child,
    OutputPipe,
    drain,
    memory_file,
    pump,
    spawn,
    unkillable,
    wait_for_end,
)
from tangram_workers.sandbox.workspaces import Workspaces

_KILL_TIMEOUT_S = 10.0
_PAUSE_S = 0.002
# More than execve accepts with the usual limits: a quarter of an 8 MiB stack, at most 6 MiB.
_ENVIRON_BYTES = 8 * 2**20
# Flags of a task, of linux/sched.h.
_PF_EXITING = 0x4
_PF_KTHREAD = 0x00200000


class ProcessDriver:
    """Runs each program as a process of this user, who can do all that the worker can.

    Where cgroups can be used they bound memory and find what is left running; else the address
    space of each process is bounded, and a variable finds what is left, unless that was started
    with an emptied environment.
    """

    name = "process"
    isolates = False

    def __init__(self, *, base_dir: Path, use_cgroups: bool = True) -> None:
        """Make the driver ready.

        Args:
            base_dir: Folder for workspaces, private to this user; nothing bounds their size.
            use_cgroups: False to do without them even where they are to be had.

        Raises:
            SettingsError: If `base_dir` cannot be used.
        """
        self._cgroups = CgroupFactory() if use_cgroups else None
        self._workspaces = Workspaces(base_dir, owner_uid=None, total_bytes=0)
        self._count = itertools.count()

    def run(self, request: SandboxRequest, cancel: CancelToken) -> SandboxReport:
        """Run a program to its end and leave nothing of it running.

        Raises:
            SandboxError: If the program could not be started through no fault of its own.
        """
        mark = f"{owner.owner_id()}/{uuid.uuid4().hex}"
        with ExitStack() as stack:
            key = request.workspace_key
            if key is None:
                key = f"once/{owner.owner_id()}/{next(self._count)}"
                stack.callback(self._workspaces.close, key)
            folder = stack.enter_context(self._workspaces.using(key))
            env = {**scripts.BASE_ENV, "HOME": str(folder), **request.grant_env}
            env = {**env, **request.command.env, MARK_VARIABLE: mark}
            argv = scripts.program_argv(request.command, env)
            if scripts.exceeds_argument_limit(argv, env):
                return scripts.argument_limit_report(argv[0])
            try:
                _write_files(folder, request.command.files)
            except OSError as error:
                return scripts.not_started_report(f"sh: cannot write the command's files: {error}")
            try:
                cgroup = None
                if self._cgroups is not None:
                    cgroup = self._cgroups.create(
                        memory_bytes=request.memory_bytes, max_processes=request.max_processes
                    )
                if cgroup is not None:
                    stack.callback(cgroup.close, timeout_s=_KILL_TIMEOUT_S)
                stdout, stderr = (OutputPipe(limit_bytes=request.output_limit_bytes) for _ in "oe")
                stack.callback(stdout.close)
                stack.callback(stderr.close)
                child = _start(
                    request,
                    argv=argv,
                    env=env,
                    folder=folder,
                    cgroup=cgroup,
                    stdout=stdout,
                    stderr=stderr,
                )
                stack.callback(child.close)
            except OSError as error:
                raise SandboxError(
                    f"A program on cores {list(request.core_ids)} cannot be started: {error}. Look "
                    "for exhausted memory, processes or descriptors on this node, and for cores "
                    "that this process may not use."
                ) from error
            return _attend(
                request,
                cancel,
                child,
                cgroup=cgroup,
                mark=mark,
                stdout=stdout,
                stderr=stderr,
            )

    def close_workspace(self, key: str) -> None:
        """Remove a lasting workspace; one that does not exist is fine."""
        self._workspaces.close(key)

    def sweep(self, *, idle_s: float) -> int:
        """Remove workspaces idle for longer than `idle_s` and what dead workers left behind.

        Returns:
            How many things were removed.
        """
        removed = 0 if self._cgroups is None else self._cgroups.sweep()
        for pid, mark in _marked():
            if mark is not None and owner.is_dead(mark.partition("/")[0]):
                removed += _kill_marked(pid, mark)
        return removed + self._workspaces.sweep(idle_s=idle_s)


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def _start(
    request: SandboxRequest,
    *,
    argv: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    cgroup: ActionCgroup | None,
    stdout: OutputPipe,
    stderr: OutputPipe,
) -> Child:
    command = request.command
    if command.stdin is None:
        stdin_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    else:
        stdin_fd = memory_file(command.stdin.encode())
    start = scripts.start_script(
        command.cwd,
        address_space_bytes=request.memory_bytes if cgroup is None else None,
    )
    entry_files = () if cgroup is None else cgroup.entry_files
    try:
        return spawn(
            ["/bin/sh", "-c", scripts.enter_script(entry_files, then=start), "sh", *argv],
            env=env,
            stdin_fd=stdin_fd,
            stdout=stdout,
            stderr=stderr,
            cwd=str(folder),
            core_ids=request.core_ids,
        )
    finally:
        os.close(stdin_fd)


def _attend(
    request: SandboxRequest,
    cancel: CancelToken,
    child: Child,
    *,
    cgroup: ActionCgroup | None,
    mark: str,
    stdout: OutputPipe,
    stderr: OutputPipe,
) -> SandboxReport:
    """Wait for the end of a started program, or bring it about, and report."""
    usage = CgroupUsage(oom_kills=0, cpu_s=0.0, peak_memory_bytes=0)
    code, waited_cpu_s = 0, 0.0
    try:
        ending = pump(
            child, stdout=stdout, stderr=stderr, timeout_s=request.timeout_s, cancel=cancel
        )
    finally:
        # Also when this thread is interrupted. The group's number is ours until we collect it.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        is_gone = wait_for_end(child.pidfd, timeout_s=_KILL_TIMEOUT_S)
        if cgroup is not None:
            usage = cgroup.usage()
            is_gone &= cgroup.close(timeout_s=_KILL_TIMEOUT_S)
        else:
            is_gone &= _kill_all_marked(mark, timeout_s=_KILL_TIMEOUT_S)
        if is_gone:
            code, waited_cpu_s = child.reap()
    if not is_gone:
        raise unkillable(f"the program {request.command.argv[0]!r}")
    run_s = time.monotonic() - child.started_s
    drain(stdout, stderr)
    if ending is Ending.EXITED and usage.oom_kills and code != 0:
        ending = Ending.OOM
    return SandboxReport(
        ending=ending,
        exit_code=code if ending is Ending.EXITED else None,
        stdout=stdout.kept,
        stderr=stderr.kept,
        stdout_truncated=stdout.is_truncated,
        stderr_truncated=stderr.is_truncated,
        run_s=run_s,
        cpu_s=usage.cpu_s or waited_cpu_s,
        peak_memory_bytes=usage.peak_memory_bytes,
    )


def _kill_all_marked(mark: str, *, timeout_s: float) -> bool:
    """Kill what carries a mark until nothing does; False if something still does at the end.

    Whoever forks and ends while we look is gone when its turn comes, and its child is on a later
    list only: so we list again until a list has nobody who was not looked at. One whose mark cannot
    be told yet is waited for.
    """
    deadline_s = time.monotonic() + timeout_s
    strangers: set[int] = set()
    while others := sorted(_process_ids() - strangers):
        found = [pid for pid in others if _mark_of(pid) in {mark, None}]
        for pid in found:
            _kill_marked(pid, mark)
        if time.monotonic() > deadline_s:
            return False
        if found:
            strangers.clear()
            time.sleep(_PAUSE_S)
        else:
            strangers.update(others)
    return True


def _marked() -> Iterator[tuple[int, str | None]]:
    """Yield process id and mark of everything that carries one, or of which it is not known yet."""
    for pid in _process_ids():
        if (mark := _mark_of(pid)) != "":
            yield pid, mark


def _process_ids() -> set[int]:
    return {int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()}


def _mark_of(pid: int) -> str | None:
    """Return a process's mark, empty if it has none, None while it becomes another program."""
    # Nothing can be read of zombies, of other users' processes and of those that have just gone.
    try:
        with Path(f"/proc/{pid}/environ").open("rb", buffering=0) as file:
            # One call gives all or nothing; between two, the process may become another program.
            variables = file.read(_ENVIRON_BYTES)
        if not variables and _has_environment(pid):
            return None
    except OSError:
        return ""
    wanted = MARK_VARIABLE.encode() + b"="
    for variable in variables.split(b"\0"):
        if variable.startswith(wanted):
            return variable[len(wanted) :].decode("utf-8", "replace")
    return ""


def _has_environment(pid: int) -> bool:
    """Say whether a process has an environment, or is within execve and about to get one.

    The fields are those of proc_pid_stat(5), counted from the state, the first after the name.
    """
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    state, flags = fields[0], int(fields[6])
    env_start, env_end = int(fields[47]), int(fields[48])
    # Kernel threads and what is ending have none, and get none.
    if state in {b"Z", b"X"} or flags & (_PF_EXITING | _PF_KTHREAD):
        return False
    return env_end == 0 or env_end > env_start


def _kill_marked(pid: int, mark: str) -> bool:
    """Kill a process if it still is the one with this mark."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Looked at again with the process held: its number may have passed to another.
        if _mark_of(pid) != mark:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True
