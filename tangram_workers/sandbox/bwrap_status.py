"""What bwrap says about its sandbox while that runs, and the sandbox's end."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal

from tangram_workers.sandbox.pump import Child, wait_for_end

#: Bound on bwrap telling the sandbox's process id; it takes bwrap a millisecond.
_SETUP_TIMEOUT_S = 5.0
_CHILD_PID = re.compile(rb'"child-pid": *(\d+)')
_EXIT_CODE = re.compile(rb'"exit-code": *(\d+)')
_MOST_BYTES = 64 * 1024


class BwrapStatus:
    """The pipe that bwrap writes its status to, and what it said."""

    def __init__(self) -> None:
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._text = b""
        self._init_pidfd = -1
        #: The program's exit code as a shell reports it; None if the program never started, or
        #: never ended by itself.
        self.exit_code: int | None = None

    def read(self) -> bool:
        """Take in what bwrap wrote; False if nothing more will come."""
        try:
            chunk = os.read(self.read_fd, 4096)
        except BlockingIOError:
            return True
        self._text += chunk
        if self._init_pidfd < 0 and (found := _CHILD_PID.search(self._text)):
            # At once: while bwrap lives, the number cannot have passed to another process.
            with contextlib.suppress(ProcessLookupError):
                self._init_pidfd = os.pidfd_open(int(found[1]))
        if found := _EXIT_CODE.search(self._text):
            self.exit_code = int(found[1])
        return bool(chunk) and len(self._text) < _MOST_BYTES

    def close_write(self) -> None:
        """Close our copy of bwrap's side."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def end_sandbox(self, child: Child, *, timeout_s: float) -> bool:
        """Kill the sandbox whatever state it is in, and take in bwrap's last words.

        Args:
            child: bwrap itself, not yet collected.
            timeout_s: Bound on killed processes being gone.

        Returns:
            False if something is still there.
        """
        self._await_init(child)
        if self._init_pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init_pidfd, signal.SIGKILL)
        child.kill()
        # The kernel reports the end of a namespace's first process when all others are gone.
        is_gone = self._init_pidfd < 0 or wait_for_end(self._init_pidfd, timeout_s=timeout_s)
        is_gone &= wait_for_end(child.pidfd, timeout_s=timeout_s)
        for _ in range(_MOST_BYTES // 4096):
            before = len(self._text)
            if not self.read() or len(self._text) == before:
                break
        return is_gone

    def _await_init(self, child: Child) -> None:
        """Wait until the sandbox's first process is known, or bwrap has ended without one.

        A bwrap that is killed just after it made that process leaves it waiting for ever, known
        to nobody.
        """
        poller = select.poll()
        poller.register(self.read_fd, select.POLLIN)
        poller.register(child.pidfd, select.POLLIN)
        while self._init_pidfd < 0:
            ready = {fd for fd, _ in poller.poll(_SETUP_TIMEOUT_S * 1000)}
            has_more = self.read() if self.read_fd in ready else False
            if not has_more or child.pidfd in ready:
                return

    def close(self) -> None:
        """Give all descriptors back."""
        self.close_write()
        for fd in (self.read_fd, self._init_pidfd):
            if fd >= 0:
                os.close(fd)
        self.read_fd = self._init_pidfd = -1
