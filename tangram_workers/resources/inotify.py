"""Bells that ring when anything happens in a folder: inotify, which Python has no module for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterable, Iterator
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


class BellShelf:
    """Keeps bells for the next who waits: the kernel takes ten milliseconds to close one."""

    def __init__(self, folders: Iterable[Path], *, most: int = 8) -> None:
        """Start without bells.

        Args:
            folders: What the bells listen to.
            most: How many are kept.
        """
        self._folders = tuple(folders)
        self._most = most
        self._lock = threading.Lock()
        self._bells: list[FolderBell] = []
        self._pid = os.getpid()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[FolderBell | None]:
        """Lend a bell to one waiting thread; None where there are none to be had."""
        with self._lock:
            if self._pid != os.getpid():
                # A fork shares our bells: each event would reach one process or the other.
                self._discard()
                self._pid = os.getpid()
            bell = self._bells.pop() if self._bells else None
        if bell is None:
            with contextlib.suppress(OSError):
                bell = FolderBell(self._folders)
        try:
            yield bell
        finally:
            if bell is not None:
                with self._lock:
                    self._bells.append(bell)
                    if len(self._bells) > self._most:
                        self._bells.pop().close()

    def close(self) -> None:
        """Give all descriptors back."""
        with self._lock:
            self._discard()

    def _discard(self) -> None:
        while self._bells:
            self._bells.pop().close()
