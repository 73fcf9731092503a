"""Lasting workspaces: folders that the actions of one trajectory share.

    <base>/workspaces/                     as root, one file system in memory for all of them
    <base>/workspaces/<hash of the key>    the folder
    <base>/locks/<hash of the key>         shared lock: in use; its mtime: when last used

The locks are the kernel's, so a worker that dies leaves none behind, and all worker processes of
a node may share one base folder.

Why one file system and not one for each: every mount of the node is copied for every sandbox that
starts, and with a few hundred of them that took longer than most actions run. What one action can
write is bounded by its memory limit, which pages of this file system count against; what all
workspaces together hold is bounded by its size. A workspace has no bound of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tangram_workers.domain.errors import SandboxError, SettingsError

_LOG = logging.getLogger(__name__)
#: Inodes of the file system, one for this many bytes of it.
_BYTES_PER_INODE = 16 * 1024
_MS_NOSUID, _MS_NODEV = 2, 4
_UMOUNT_NOFOLLOW = 8
_LIBC = ctypes.CDLL(None, use_errno=True)


class Workspaces:
    """The workspaces below one base folder; safe to use from many threads and processes."""

    def __init__(self, base_dir: Path, *, owner_uid: int | None, total_bytes: int) -> None:
        """Make the base folder ready; nothing is mounted before the first workspace is made.

        Args:
            base_dir: Made if missing; must belong to this process's user.
            owner_uid: User that workspaces belong to, given by root only: they then lie on a file
                system in memory. None: plain folders of this process's user, whose size nothing
                bounds.
            total_bytes: Size of that file system.

        Raises:
            SettingsError: If the folder cannot be used safely.
        """
        self._owner_uid = owner_uid
        self._total_bytes = total_bytes
        self._folders = base_dir / "workspaces"
        self._locks = base_dir / "locks"
        # Execute alone: the sandbox's user passes through, and can list nothing.
        passable = 0o700 if owner_uid is None else 0o711
        try:
            base_dir.parent.mkdir(parents=True, exist_ok=True)
            for folder, mode in (
                (base_dir, passable),
                (self._folders, passable),
                (self._locks, 0o700),
            ):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=mode)
                _require_own(folder)
                folder.chmod(mode)
        except OSError as error:
            raise SettingsError(
                f"The sandbox folder {base_dir} cannot be made ready: {error}. "
                "Set TANGRAM_SANDBOX_DIR to a folder that this user may write to."
            ) from None
        if owner_uid is not None:
            _require_passable(base_dir)

    @contextlib.contextmanager
    def using(self, key: str) -> Iterator[Path]:
        """Make a workspace if it is not there, and keep it from being removed meanwhile.

        Args:
            key: Any text; equal keys are one workspace.

        Yields:
            Its folder. The host must not open anything inside: an action may have laid links.

        Raises:
            SandboxError: If it cannot be made.
        """
        name = _name_of(key)
        try:
            fd = self._lock(name, fcntl.LOCK_SH)
        except OSError as error:
            raise SandboxError(f"The workspace {key!r} cannot be locked: {error}.") from error
        try:
            try:
                os.utime(fd)
                self._make(name)
            except OSError as error:
                raise SandboxError(
                    f"The workspace {key!r} cannot be made: {error}. Look for full memory or a "
                    "full disk on this node; the action is tried again."
                ) from error
            yield self._folders / name
        finally:
            is_unwanted = os.fstat(fd).st_mtime == 0
            if not is_unwanted:
                os.utime(fd)
            os.close(fd)
            if is_unwanted:
                self.close(key)

    def close(self, key: str) -> None:
        """Remove a workspace; one in use goes when its last user is done with it."""
        name = _name_of(key)
        if (self._locks / name).exists() and not self._remove(name, unused_since_s=None):
            # Marked: the last user, or else a sweep, removes it.
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._locks / name, (0, 0))
            # That user may have looked at the mark just before it was there.
            self._remove(name, unused_since_s=None)

    def sweep(self, *, idle_s: float) -> int:
        """Remove the workspaces that nobody uses or used for `idle_s` seconds; return how many."""
        names = {entry.name for entry in os.scandir(self._folders)}
        names |= {entry.name for entry in os.scandir(self._locks) if entry.name != ".make"}
        before_s = time.time() - idle_s
        removed = sum(self._remove(name, unused_since_s=before_s) for name in sorted(names))
        self._unmount_if_empty()
        return removed

    def _make(self, name: str) -> None:
        folder = self._folders / name
        if self._is_made(folder):
            return
        # The shared lock keeps removers away; this one keeps other makers away.
        with self._making():
            if self._is_made(folder):
                return
            if self._owner_uid is None:
                folder.mkdir(mode=0o700)
                return
            if not self._is_mounted():
                _mount_memory(self._folders, self._total_bytes)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            # Last: a folder that belongs to the sandbox's user is a finished one.
            os.chown(folder, self._owner_uid, self._owner_uid)

    def _is_made(self, folder: Path) -> bool:
        try:
            status = folder.lstat()
        except FileNotFoundError:
            return False
        return self._owner_uid is None or status.st_uid == self._owner_uid

    @contextlib.contextmanager
    def _making(self) -> Iterator[None]:
        fd = os.open(self._locks / ".make", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _is_mounted(self) -> bool:
        return self._folders.stat().st_dev != self._locks.stat().st_dev

    def _unmount_if_empty(self) -> None:
        if self._owner_uid is None:
            return
        with self._making():
            # Refused while anybody uses it, which is what is wanted.
            if self._is_mounted() and not list(self._folders.iterdir()):
                _LIBC.umount2(os.fsencode(self._folders), _UMOUNT_NOFOLLOW)

    def _remove(self, name: str, *, unused_since_s: float | None) -> bool:
        """Remove a workspace unless it is in use or, where a bound is given, was used since."""
        try:
            fd = self._lock(name, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            if unused_since_s is not None and os.fstat(fd).st_mtime > unused_since_s:
                return False
            folder = self._folders / name
            if folder.exists():
                _remove_tree(folder)
            # While it is still locked: whoever waits for it sees that the file is gone.
            (self._locks / name).unlink(missing_ok=True)
        except OSError as error:
            _LOG.warning("The workspace %s could not be removed: %s", name, error)
            return False
        finally:
            os.close(fd)
        return True

    def _lock(self, name: str, how: int) -> int:
        """Return a locked descriptor of the workspace's lock file."""
        path = self._locks / name
        while True:
            fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, how)
                # Removed between our opening and locking: then we locked nothing of use.
                if os.fstat(fd).st_nlink > 0:
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)


def _name_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _require_own(folder: Path) -> None:
    """Refuse a folder that another user laid where everybody may write."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise SettingsError(
            f"{folder} is not a folder of user {os.geteuid()}, who runs this worker. Remove it, "
            "or set TANGRAM_SANDBOX_DIR to another folder."
        )


def _require_passable(base_dir: Path) -> None:
    for folder in base_dir.absolute().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise SettingsError(
                f"TANGRAM_SANDBOX_DIR={str(base_dir)!r} is not valid: the sandbox's user may not "
                f"pass through {folder}. Choose a folder below /var/lib or /tmp."
            )


def _mount_memory(folder: Path, size_bytes: int) -> None:
    inodes = max(1024, size_bytes // _BYTES_PER_INODE)
    options = f"size={size_bytes},nr_inodes={inodes},mode=0711"
    failed = _LIBC.mount(
        b"tangram", os.fsencode(folder), b"tmpfs", _MS_NOSUID | _MS_NODEV, options.encode()
    )
    if failed:
        # Root without the right to mount, as in most containers.
        _LOG.warning(
            "No file system in memory for %s (%s): its size is not bounded.",
            folder,
            os.strerror(ctypes.get_errno()),
        )


def _remove_tree(folder: Path) -> None:
    """Remove a folder whose owner may have taken all rights from its sub-folders."""
    try:
        shutil.rmtree(folder)
    except PermissionError:
        # Nothing runs in it any more, so nobody can put a link in our way.
        for path, names, _ in os.walk(folder):
            for inner in (Path(path, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(0o700)
        shutil.rmtree(folder)
