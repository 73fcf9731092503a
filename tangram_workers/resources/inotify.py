"""A bell that rings when anything happens in a folder: inotify, which Python has no module for."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_CLOSE_WRITE, _IN_DELETE = 0x008, 0x200


class FolderBell:
    """A descriptor that is readable once a file of some folders was closed or removed.

    The kernel closes the files of a killed process too, so its death rings as well.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        """Start to listen.

        Raises:
            OSError: If the user has too many such descriptors, or the file system has no events.
        """
        self._fd: int = _LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        for folder in folders:
            path = os.fsencode(folder)
            if _LIBC.inotify_add_watch(self._fd, path, _IN_CLOSE_WRITE | _IN_DELETE) < 0:
                number = ctypes.get_errno()
                self.close()
                raise OSError(number, "inotify_add_watch", str(folder))

    def fileno(self) -> int:
        """Return the descriptor to select on."""
        return self._fd

    def silence(self) -> None:
        """Forget what has happened so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 64 * 1024):
                pass

    def close(self) -> None:
        """Give the descriptor back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
