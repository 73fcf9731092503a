"""The flag that asks running work to stop."""

from __future__ import annotations

import os
import threading


class CancelToken:
    """A flag that a waiting thread can select on; safe to set from any thread, any number of times.

    Use it as a context manager, so that its descriptor is given back.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_set = False
        # Between reading the descriptor and writing to it, its number must not pass to a new file.
        self._lock = threading.Lock()

    def set(self) -> None:
        """Ask for cancellation."""
        with self._lock:
            if not self._is_set and self._fd >= 0:
                os.eventfd_write(self._fd, 1)
            self._is_set = True

    @property
    def is_set(self) -> bool:
        """True once somebody asked for cancellation."""
        return self._is_set

    def fileno(self) -> int:
        """Return a descriptor that is readable once the token is set."""
        return self._fd

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def __enter__(self) -> CancelToken:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
