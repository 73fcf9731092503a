"""Finds the cgroup folders below which this process may make cgroups for its actions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Where this process moves, with all else of its container, to free its cgroup for actions.
_LEAF = "tangram-worker"
_V2_NEEDED = {"memory", "pids"}
_V1_USED = ("memory", "pids", "cpuacct")


@dataclass(frozen=True, kw_only=True, slots=True)
class CgroupProbe:
    """Which cgroups the actions of this process get."""

    #: "v1", "v2" or "none".
    version: str
    controllers: tuple[str, ...]
    #: Empty if all is as it should be; else what is missing, why, and what to do.
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mount:
    """One mounted cgroup hierarchy."""

    kind: str  # "cgroup" (v1) or "cgroup2"
    options: frozenset[str]
    #: Folder of the hierarchy that is mounted; a container often sees its own part only.
    root: Path
    point: Path


def find_cgroups() -> tuple[CgroupProbe, dict[str, Path]]:
    """Return what is active, and controller -> folder below which actions' cgroups are made.

    On v2 this may move the processes of a container whose cgroup is wholly its own into one of its
    sub-folders: a cgroup cannot both hold processes and bound those of its sub-folders.
    """
    mounts, paths = list(_read_mounts()), _read_own_paths()
    parents, missing = _find_v1(mounts, paths)
    if parents:
        reason = ""
        if missing:
            reason = (
                f"No {' and no '.join(missing)} controller of cgroup v1 that this process may "
                "write to. Run the worker as root with writable cgroups to bound all of it."
            )
        return CgroupProbe(version="v1", controllers=tuple(parents), reason=reason), parents
    parent, reason = _find_v2(mounts, paths.get(""))
    if parent is not None:
        controllers = tuple(sorted(_V2_NEEDED))
        # cpu.stat needs no controller, so CPU time is there without "cpu".
        found = CgroupProbe(version="v2", controllers=controllers, reason="")
        return found, dict.fromkeys(controllers, parent)
    return CgroupProbe(version="none", controllers=(), reason=reason), {}


def _find_v1(mounts: list[_Mount], paths: dict[str, str]) -> tuple[dict[str, Path], list[str]]:
    parents: dict[str, Path] = {}
    for controller in _V1_USED:
        for mount in mounts:
            if mount.kind != "cgroup" or controller not in mount.options:
                continue
            folder = _folder_of(mount, paths.get(controller))
            if folder is not None and _can_make_folders(folder):
                parents[controller] = folder
                break
    if "memory" not in parents and "pids" not in parents:
        return {}, list(_V1_USED)
    return parents, [name for name in _V1_USED if name not in parents]


def _find_v2(mounts: list[_Mount], path: str | None) -> tuple[Path | None, str]:
    """Return the v2 folder to use, or why there is none."""
    own = next((f for m in mounts if m.kind == "cgroup2" and (f := _folder_of(m, path))), None)
    if own is None:
        return None, (
            "No cgroups are mounted where this process could make its own. Memory is bounded per "
            "process only; mount cgroups writable into the worker's container."
        )
    missing = _V2_NEEDED - set(read_text(own / "cgroup.controllers").split())
    if missing:
        return None, (
            f"The cgroup of this process lacks the {' and '.join(sorted(missing))} controllers. "
            "Start the worker with `systemd-run --user --scope -p Delegate=yes tangram worker`."
        )
    # A sibling needs no move: the service manager (or we, earlier) already put us in a leaf.
    if own.name == _LEAF and _is_ready(own.parent):
        return own.parent, ""
    if not _can_make_folders(own):
        return None, (
            f"This process may not make cgroups below {own}. Start the worker with "
            "`systemd-run --user --scope -p Delegate=yes tangram worker`, or as root."
        )
    if _is_ready(own) or _enable(own):
        return own, ""
    # Move away only where the cgroup is wholly ours: a cgroup namespace's root, or a delegated
    # one that holds nothing but this process.
    if path == "/" or read_text(own / "cgroup.procs").split() == [str(os.getpid())]:
        leaf = own / _LEAF
        with contextlib.suppress(OSError):
            leaf.mkdir(exist_ok=True)
            # Several rounds: something may fork while it is being moved.
            for _ in range(3):
                for pid in read_text(own / "cgroup.procs").split():
                    write_text(leaf / "cgroup.procs", pid)
        if _enable(own):
            return own, ""
    return None, (
        f"Other processes share the cgroup {own}, so it cannot bound actions. Start the worker "
        "with `systemd-run --user --scope -p Delegate=yes tangram worker`."
    )


def _is_ready(folder: Path) -> bool:
    enabled = set(read_text(folder / "cgroup.subtree_control").split())
    return enabled >= _V2_NEEDED and _can_make_folders(folder)


def _enable(folder: Path) -> bool:
    wanted = " ".join(f"+{name}" for name in sorted(_V2_NEEDED))
    return write_text(folder / "cgroup.subtree_control", wanted) and _is_ready(folder)


def _can_make_folders(folder: Path) -> bool:
    # access(2) rather than the mode bits: it also knows of read-only mounts.
    entry = folder / "cgroup.procs"
    return os.access(folder, os.W_OK | os.X_OK) and os.access(entry, os.W_OK)


def _folder_of(mount: _Mount, path: str | None) -> Path | None:
    """Return where a cgroup path of this process is to be seen, if it is."""
    if path is None:
        return None
    try:
        folder = mount.point / Path(path).relative_to(mount.root)
    except ValueError:
        return None
    return folder if folder.is_dir() else None


def _read_mounts() -> Iterator[_Mount]:
    for line in read_text(Path("/proc/self/mountinfo")).splitlines():
        before, _, behind = line.partition(" - ")
        kind, _, options = behind.split(" ")[:3]
        if kind in ("cgroup", "cgroup2"):
            fields = before.split(" ")
            yield _Mount(
                kind=kind,
                options=frozenset(options.split(",")),
                root=Path(fields[3]),
                point=Path(fields[4]),
            )


def _read_own_paths() -> dict[str, str]:
    """Return controller -> path of this process's cgroup; "" stands for the v2 hierarchy."""
    paths: dict[str, str] = {}
    for line in read_text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def read_text(path: Path) -> str:
    """Return a control file's text; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_number(path: Path) -> int:
    """Return a control file's number; 0 if it has none."""
    text = read_text(path).strip()
    return int(text) if text.isdecimal() else 0


def write_text(path: Path, text: str) -> bool:
    """Write to a control file that may be absent; tell whether it was taken."""
    try:
        # Not write_text(): that would create a file that is not there.
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
