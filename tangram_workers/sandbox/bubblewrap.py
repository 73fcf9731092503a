"""The driver that isolates: one bubblewrap sandbox per action.

    sh (enters cgroups) -> setpriv (drops root) -> bwrap => sh (writes files) -> the program

An arrow is the same process becoming another program; `=>` crosses into the sandbox. The sandbox
ends with its own first process: the kernel then kills everything in its PID namespace, whatever
sessions and groups it made.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tangram_workers.domain.action import Command
from tangram_workers.domain.errors import MissingPartError, SandboxError
from tangram_workers.domain.resources import MIB
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.sandbox import layout, scripts, seccomp
from tangram_workers.sandbox.bwrap_status import BwrapStatus
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
)
from tangram_workers.sandbox.workspaces import Workspaces

#: Bound on killed processes being gone.
_KILL_TIMEOUT_S = 10.0


class BubblewrapDriver:
    """Runs each program in a bubblewrap sandbox of its own."""

    name = "bubblewrap"
    isolates = True

    def __init__(
        self, *, bwrap_path: str, base_dir: Path, sandbox_uid: int, workspaces_bytes: int
    ) -> None:
        """Make the driver ready and try it once.

        Args:
            bwrap_path: The bwrap program.
            base_dir: Folder for lasting workspaces, private to this user.
            sandbox_uid: Unused host user that sandboxes run as, if this process is root.
            workspaces_bytes: Size of all lasting workspaces together, if this process is root.

        Raises:
            MissingPartError: If a program that it needs is not there.
            SandboxError: If the system refuses sandboxes.
            SettingsError: If `base_dir` cannot be used.
        """
        self._uid = sandbox_uid if os.geteuid() == 0 else None
        self._drop_root: Sequence[str] = ()
        if self._uid is not None:
            # A bwrap that is run by root would write files as the host's root.
            user = (f"--reuid={self._uid}", f"--regid={self._uid}", "--clear-groups")
            self._drop_root = (_find_setpriv(), *user, "--")
        self._bwrap_path = bwrap_path
        self._fixed_options = layout.fixed_options(bwrap_path)
        self._seccomp_filter = seccomp.make_filter()
        self._cgroups = CgroupFactory()
        self._workspaces = Workspaces(base_dir, owner_uid=self._uid, total_bytes=workspaces_bytes)
        self._try_once()

    def run(self, request: SandboxRequest, cancel: CancelToken) -> SandboxReport:
        """Run a program to its end and leave nothing of it running.

        Raises:
            SandboxError: If the sandbox itself failed; the program is not to blame.
        """
        env = {**scripts.BASE_ENV, **request.grant_env, **request.command.env}
        argv = scripts.program_argv(request.command, env)
        if scripts.exceeds_argument_limit(argv, env):
            return scripts.argument_limit_report(argv[0])
        with ExitStack() as stack:
            workspace = None
            if request.workspace_key is not None:
                workspace = stack.enter_context(self._workspaces.using(request.workspace_key))
            try:
                cgroup = self._cgroups.create(
                    memory_bytes=request.memory_bytes, max_processes=request.max_processes
                )
                if cgroup is not None:
                    # For errors; the ordinary path closes it earlier and heeds the answer.
                    stack.callback(cgroup.close, timeout_s=_KILL_TIMEOUT_S)
                pipes = self._open_pipes(stack, request)
                status = BwrapStatus()
                stack.callback(status.close)
                child = self._start(
                    request,
                    argv=argv,
                    env=env,
                    workspace=workspace,
                    cgroup=cgroup,
                    pipes=pipes,
                    status=status,
                )
                stack.callback(child.close)
            except OSError as error:
                raise SandboxError(
                    f"A sandbox on cores {list(request.core_ids)} cannot be started: {error}. Look "
                    "for exhausted memory, processes or descriptors on this node, and for cores "
                    "that this process may not use."
                ) from error
            return _attend(request, cancel, child, cgroup=cgroup, pipes=pipes, status=status)

    def close_workspace(self, key: str) -> None:
        """Remove a lasting workspace; one that does not exist is fine."""
        self._workspaces.close(key)

    def sweep(self, *, idle_s: float) -> int:
        """Remove workspaces idle for longer than `idle_s` and what dead workers left behind.

        Returns:
            How many things were removed.
        """
        return self._cgroups.sweep() + self._workspaces.sweep(idle_s=idle_s)

    def _open_pipes(
        self, stack: ExitStack, request: SandboxRequest
    ) -> tuple[OutputPipe, OutputPipe]:
        pipes = []
        for _ in range(2):
            pipe = OutputPipe(limit_bytes=request.output_limit_bytes, owner_uid=self._uid)
            stack.callback(pipe.close)
            pipes.append(pipe)
        return pipes[0], pipes[1]

    def _start(
        self,
        request: SandboxRequest,
        *,
        argv: Sequence[str],
        env: Mapping[str, str],
        workspace: Path | None,
        cgroup: ActionCgroup | None,
        pipes: tuple[OutputPipe, OutputPipe],
        status: BwrapStatus,
    ) -> Child:
        """Start bwrap; descriptors that only it needs are closed again here."""
        command = request.command
        with ExitStack() as ours:

            def lend(content: bytes) -> int:
                fd = memory_file(content)
                ours.callback(os.close, fd)
                return fd

            files = {path: lend(content) for path, content in layout.ETC_FILES.items()}
            if command.files:
                script = scripts.files_script(command.files)
                files[layout.FILES_SCRIPT] = lend(script.encode())
            lent = list(files.values())
            options = self._fixed_options + layout.action_options(
                env=env, disk_bytes=request.disk_bytes, workspace=workspace, files=files
            )
            if self._seccomp_filter is not None:
                lent.append(lend(self._seccomp_filter))
                options += ["--seccomp", str(lent[-1])]
            # Not as arguments: those are open to every user's eyes, and bounded in size.
            options_fd = lend(b"".join(option.encode() + b"\0" for option in options))
            if command.stdin is None:
                stdin_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                ours.callback(os.close, stdin_fd)
            else:
                stdin_fd = lend(command.stdin.encode())
            bounded = self._cgroups
            start = scripts.start_script(
                command.cwd,
                files_script=layout.FILES_SCRIPT if command.files else None,
                max_processes=None if bounded.limits_processes else request.max_processes,
                address_space_bytes=None if bounded.limits_memory else request.memory_bytes,
            )
            enter = scripts.enter_script(() if cgroup is None else cgroup.entry_files)
            bwrap = [self._bwrap_path, "--args", str(options_fd)]
            bwrap += ["--json-status-fd", str(status.write_fd), "--"]
            inner = ("/bin/sh", "-c", start, "sh")
            child = spawn(
                [*("/bin/sh", "-c", enter, "sh"), *self._drop_root, *bwrap, *inner, *argv],
                env={},  # the worker's own variables hold secrets
                stdin_fd=stdin_fd,
                stdout=pipes[0],
                stderr=pipes[1],
                pass_fds=(options_fd, status.write_fd, *lent),
                core_ids=request.core_ids,
            )
        status.close_write()
        return child

    def _try_once(self) -> None:
        request = SandboxRequest(
            command=Command(argv=("true",)),
            core_ids=tuple(os.sched_getaffinity(0)),
            memory_bytes=64 * MIB,
            disk_bytes=1 * MIB,
            max_processes=8,
            timeout_s=30.0,
            output_limit_bytes=4096,
        )
        with CancelToken() as cancel:
            report = self.run(request, cancel)
        if report.exit_code != 0:
            raise SandboxError(
                f"A trial sandbox could not run `true` (exit code {report.exit_code}): "
                f"{_last_words(report.stderr)}. Run `tangram doctor`."
            )


def find_bwrap() -> str:
    """Return the path of bwrap.

    Raises:
        MissingPartError: If it is not installed.
    """
    path = shutil.which("bwrap")
    if path is None:
        raise MissingPartError(
            "Sandboxes need the program bwrap, which is not on PATH. Install it: "
            "`apt-get install bubblewrap`."
        )
    return path


def _find_setpriv() -> str:
    path = shutil.which("setpriv")
    if path is None:
        raise MissingPartError(
            "A worker that runs as root needs the program setpriv, which is not on PATH. "
            "Install it: `apt-get install util-linux`."
        )
    return path


def _attend(
    request: SandboxRequest,
    cancel: CancelToken,
    child: Child,
    *,
    cgroup: ActionCgroup | None,
    pipes: tuple[OutputPipe, OutputPipe],
    status: BwrapStatus,
) -> SandboxReport:
    """Wait for the end of a started sandbox, or bring it about, and report."""
    stdout, stderr = pipes
    is_gone, bwrap_code, own_cpu_s = False, 0, 0.0
    try:
        ending = pump(
            child,
            stdout=stdout,
            stderr=stderr,
            timeout_s=request.timeout_s,
            cancel=cancel,
            status_fd=status.read_fd,
            on_status=status.read,
        )
    finally:
        # Also when this thread is interrupted: nothing is left running, ever.
        is_gone = status.end_sandbox(child, timeout_s=_KILL_TIMEOUT_S)
        if is_gone:
            bwrap_code, own_cpu_s = child.reap()
    run_s = time.monotonic() - child.started_s
    usage = CgroupUsage(oom_kills=0, cpu_s=own_cpu_s, peak_memory_bytes=0)
    if cgroup is not None:
        usage = cgroup.usage()
        is_gone &= cgroup.close(timeout_s=_KILL_TIMEOUT_S)
    if not is_gone:
        raise unkillable(f"the sandbox of {request.command.argv[0]!r}")
    drain(stdout, stderr)
    exit_code = status.exit_code
    if ending is Ending.EXITED:
        if usage.oom_kills and exit_code != 0:
            ending = Ending.OOM
        elif exit_code is None:
            raise SandboxError(
                f"bwrap could not make a sandbox (exit code {bwrap_code}): "
                f"{_last_words(stderr.kept)}. If it speaks of namespaces or permissions, this "
                "machine or container forbids user namespaces: allow them (sysctl "
                "user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0)."
            )
    return SandboxReport(
        ending=ending,
        exit_code=exit_code if ending is Ending.EXITED else None,
        stdout=stdout.kept,
        stderr=stderr.kept,
        stdout_truncated=stdout.is_truncated,
        stderr_truncated=stderr.is_truncated,
        run_s=run_s,
        cpu_s=usage.cpu_s,
        peak_memory_bytes=usage.peak_memory_bytes,
    )


def _last_words(stderr: bytes) -> str:
    text = stderr[-500:].decode("utf-8", "backslashreplace").strip()
    return text.rstrip(".") or "it said nothing"
