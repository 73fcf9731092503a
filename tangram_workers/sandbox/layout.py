"""What the inside of a bubblewrap sandbox looks like, as bwrap options."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tangram_workers.domain.errors import MissingPartError

WORKSPACE = "/workspace"
#: Where the command's files lie before they are written to the workspace.
FILES_SCRIPT = "/.tangram-files"

_UID = "1000"
_TMP, _SHM, _VAR_TMP = "/tmp", "/dev/shm", "/var/tmp"  # noqa: S108 - private inside
_TOP_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
#: Parts of the host's /etc that programs need and that say nothing about the host.
_ETC_PARTS = ("alternatives", "ld.so.cache", "localtime", "ssl/certs", "ssl/openssl.cnf")
#: The sandbox's own /etc.
ETC_FILES: Mapping[str, bytes] = {
    "/etc/passwd": b"root:x:0:0:root:/root:/usr/sbin/nologin\n"
    b"sandbox:x:1000:1000:sandbox:/workspace:/bin/sh\n",
    "/etc/group": b"root:x:0:\nsandbox:x:1000:\n",
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}


def fixed_options(bwrap_path: str) -> list[str]:
    """Return the options that are alike for every action of this host."""
    options = [
        "--unshare-all",
        "--unshare-user",
        *_nested_namespace_options(bwrap_path),
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        *("--hostname", "sandbox"),
        *("--uid", _UID, "--gid", _UID),
        *("--cap-drop", "ALL"),
        *("--ro-bind", "/usr", "/usr"),
        # Named, since the folders that bwrap makes by itself are closed to other users.
        *("--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/etc/ssl"),
        *("--perms", "0755", "--dir", "/var", "--symlink", _TMP, _VAR_TMP),
    ]
    for name in _TOP_FOLDERS:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in _ETC_PARTS:
        path = Path("/etc", name)
        # What the sandbox's user may not read, bwrap could not bind either.
        if path.exists() and path.stat().st_mode & stat.S_IROTH:
            options += ["--ro-bind", str(path.resolve()), str(path)]
    return [*options, "--proc", "/proc", "--dev", "/dev"]


def _nested_namespace_options(bwrap_path: str) -> Sequence[str]:
    """Return the option that forbids user namespaces inside, where this bwrap has it.

    Without it a program is root in a namespace of its own, with a wide part of the kernel open.
    A bwrap that is itself setuid refuses the option.
    """
    done = subprocess.run(
        [bwrap_path, "--help"], capture_output=True, text=True, timeout=10, check=False
    )
    known = done.stdout + done.stderr
    if "--size" not in known:
        raise MissingPartError(
            f"{bwrap_path} is older than bubblewrap 0.7 and cannot bound folders in memory. "
            "Install a newer one: `apt-get install bubblewrap` on Debian 12 or Ubuntu 24.04."
        )
    is_setuid = bool(Path(bwrap_path).stat().st_mode & stat.S_ISUID)
    return ("--disable-userns",) if "--disable-userns" in known and not is_setuid else ()


def action_options(
    *, env: Mapping[str, str], disk_bytes: int, workspace: Path | None, files: Mapping[str, int]
) -> list[str]:
    """Return the options of one action, to follow the fixed ones.

    Args:
        env: All its variables.
        disk_bytes: Size of its /tmp, and of its workspace where that is its own.
        workspace: Host's folder of a lasting workspace; None for one of its own.
        files: Path inside -> descriptor with the content; bwrap closes each.
    """
    size = str(disk_bytes)
    options = []
    for path, fd in files.items():
        options += ["--perms", "0644", "--file", str(fd), path]
    options += ["--size", size, "--perms", "1777", "--tmpfs", _TMP]
    # bwrap's own /dev/shm, and /dev itself, would take files without end.
    options += ["--size", size, "--perms", "1777", "--tmpfs", _SHM, "--remount-ro", "/dev"]
    if workspace is None:
        options += ["--size", size, "--tmpfs", WORKSPACE]
    else:
        options += ["--bind", str(workspace), WORKSPACE]
    options += ["--remount-ro", "/", "--chdir", WORKSPACE]
    for name, value in env.items():
        options += ["--setenv", name, value]
    return options
