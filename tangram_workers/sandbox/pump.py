"""Waits for a program: reads what it prints, minds its time limit and the cancel flag.

Nothing here trusts the program to end, to close its pipes, or to print a sane amount.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tangram_workers.domain.errors import SandboxError
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.sandbox.protocol import Ending

#: As much as an ordinary user may ask for; a flooding program then wakes us seldom.
_PIPE_BYTES = 1024 * 1024
_CHUNK_BYTES = 256 * 1024
#: Longest single wait of poll(2), which counts milliseconds in an int.
_LONGEST_WAIT_S = 3600.0


class OutputPipe:
    """A pipe of which the first bytes are kept and the rest is read and dropped."""

    def __init__(self, *, limit_bytes: int, owner_uid: int | None = None) -> None:
        """Open the pipe.

        Args:
            limit_bytes: How much is kept.
            owner_uid: User that the pipe shall belong to, so that a program of that user may
                open /dev/stdout by name; None leaves it ours.
        """
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.read_fd, False)
        # Blocking on the program's side: programs expect that of a pipe.
        os.set_blocking(self.write_fd, True)
        with contextlib.suppress(OSError):  # above the user's share: a smaller pipe works too
            fcntl.fcntl(self.write_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        if owner_uid is not None:
            os.fchown(self.write_fd, owner_uid, owner_uid)
        self._limit_bytes = limit_bytes
        self._kept = bytearray()
        self.is_truncated = False
        self.is_open = True

    @property
    def kept(self) -> bytes:
        """What was read, up to the limit."""
        return bytes(self._kept)

    def read(self, scratch: bytearray) -> bool:
        """Read once, without waiting.

        Args:
            scratch: Room for one read; its content is of no meaning afterwards.

        Returns:
            False if there was nothing to read, or nothing more will come.
        """
        try:
            count = os.readv(self.read_fd, [scratch])
        except BlockingIOError:
            return False
        if count == 0:
            self.is_open = False
            return False
        room = self._limit_bytes - len(self._kept)
        self._kept += memoryview(scratch)[: min(count, room)]
        self.is_truncated |= count > room
        return True

    def drain(self, scratch: bytearray) -> None:
        """Read what is left. To be called when the program and all it started are dead."""
        # An empty pipe ends this, not a closed one: somebody unrelated may hold it open. The count
        # bounds it even if that somebody writes.
        for _ in range(8 * _PIPE_BYTES // 4096):
            if not self.read(scratch):
                return

    def close_write(self) -> None:
        """Close our copy of the program's side."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def close(self) -> None:
        """Give both descriptors back."""
        self.close_write()
        if self.read_fd >= 0:
            os.close(self.read_fd)
            self.read_fd = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Child:
    """A started program, not yet waited for."""

    pid: int
    pidfd: int
    popen: subprocess.Popen[bytes]
    started_s: float  # monotonic

    def reap(self) -> tuple[int, float]:
        """Collect the ended program.

        Returns:
            Exit code as a shell reports it, and CPU seconds of it and the children it waited for.
        """
        _, status, usage = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        # Popen must know, or it would wait for a process id that is no longer ours.
        self.popen.returncode = code
        return (128 - code if code < 0 else code), usage.ru_utime + usage.ru_stime

    def kill(self) -> None:
        """Kill the program itself; its children are the driver's affair."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.pidfd)


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin_fd: int,
    stdout: OutputPipe,
    stderr: OutputPipe,
    pass_fds: Sequence[int] = (),
    cwd: str = "/",
    core_ids: Sequence[int],
) -> Child:
    """Start a program in a session of its own, on the given cores only.

    No hook runs between fork and exec and no user is switched here, so that Python uses vfork: a
    worker with much memory starts programs as fast as a small one.

    Raises:
        OSError: If the program cannot be started, or the cores are not ours to use.
    """
    started_s = time.monotonic()
    with _affinity(core_ids):
        popen = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=stdin_fd,
            stdout=stdout.write_fd,
            stderr=stderr.write_fd,
            pass_fds=tuple(pass_fds),
            cwd=cwd,
            start_new_session=True,
        )
    stdout.close_write()
    stderr.close_write()
    try:
        pidfd = os.pidfd_open(popen.pid)
    except OSError:
        popen.kill()
        popen.wait()
        raise
    return Child(pid=popen.pid, pidfd=pidfd, popen=popen, started_s=started_s)


@contextlib.contextmanager
def _affinity(core_ids: Sequence[int]) -> Iterator[None]:
    """Run the calling thread on the given cores; a child started meanwhile inherits them."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, core_ids)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pump(
    child: Child,
    *,
    stdout: OutputPipe,
    stderr: OutputPipe,
    timeout_s: float,
    cancel: CancelToken,
    status_fd: int = -1,
    on_status: Callable[[], bool] | None = None,
) -> Ending:
    """Wait until the program ends, its time is up, or somebody cancels; it is not killed here.

    Args:
        child: The program.
        stdout: Its standard output, read meanwhile.
        stderr: Its standard error, read meanwhile.
        timeout_s: Seconds from its start.
        cancel: The flag to mind.
        status_fd: Another descriptor to watch.
        on_status: Called when `status_fd` is readable; returns False to watch it no longer.

    Returns:
        EXITED, TIMED_OUT or CANCELLED.
    """
    deadline_s = child.started_s + timeout_s
    scratch = bytearray(_CHUNK_BYTES)
    pipes = {pipe.read_fd: pipe for pipe in (stdout, stderr)}
    cancel_fd = cancel.fileno()
    poller = select.poll()
    for fd in (child.pidfd, cancel_fd, *pipes):
        poller.register(fd, select.POLLIN)
    if on_status is not None:
        poller.register(status_fd, select.POLLIN)
    while True:
        left_s = deadline_s - time.monotonic()
        # Rounded up, or the last millisecond would be spent spinning.
        ready = {fd for fd, _ in poller.poll(max(0.0, min(left_s, _LONGEST_WAIT_S)) * 1000 + 1)}
        # The end goes first: a program that made it in time has not timed out.
        if child.pidfd in ready:
            return Ending.EXITED
        if cancel_fd in ready:
            return Ending.CANCELLED
        if time.monotonic() >= deadline_s:
            return Ending.TIMED_OUT
        # One read each per round, so that a flood delays neither the clock nor the other pipe.
        for fd in pipes.keys() & ready:
            if not pipes[fd].read(scratch) and not pipes[fd].is_open:
                poller.unregister(fd)
        if on_status is not None and status_fd in ready and not on_status():
            poller.unregister(status_fd)


def drain(*pipes: OutputPipe) -> None:
    """Read what dead programs left in their pipes."""
    scratch = bytearray(_CHUNK_BYTES)
    for pipe in pipes:
        if pipe.is_open:
            pipe.drain(scratch)


def wait_for_end(pidfd: int, *, timeout_s: float) -> bool:
    """Wait until a process has ended (not: has been collected).

    Args:
        pidfd: Descriptor of the process.
        timeout_s: Bound on the wait.

    Returns:
        False if it still runs.
    """
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def memory_file(content: bytes) -> int:
    """Return a descriptor of an unnamed file in memory, at its start, that nobody can change."""
    fd = os.memfd_create("tangram", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        # Else the program could fill memory through its own input, past every limit of its own.
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(fd)
        raise
    return fd


def unkillable(what: str) -> SandboxError:
    """Return the error for processes that outlive SIGKILL."""
    return SandboxError(
        f"Processes of {what} outlived SIGKILL, most likely inside a stuck file system. Look for "
        "processes in state D on this node; the action is tried again elsewhere."
    )
