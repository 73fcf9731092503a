"""Sandbox drivers as the tests use them."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tangram_workers.domain.action import Command
from tangram_workers.domain.resources import MIB
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.sandbox.bubblewrap import BubblewrapDriver, find_bwrap
from tangram_workers.sandbox.cgroup_mounts import find_cgroups
from tangram_workers.sandbox.cgroups import CgroupFactory
from tangram_workers.sandbox.process import ProcessDriver
from tangram_workers.sandbox.protocol import SandboxDriver, SandboxReport, SandboxRequest

#: "nobody" is bubblewrap run by an ordinary user, "bare" the process driver without cgroups.
DRIVERS = ("bubblewrap", "bubblewrap-nobody", "process", "process-bare")
NOBODY = 65534
SANDBOX_UID = 64321
#: Of all lasting workspaces of a test together.
WORKSPACES_BYTES = 64 * MIB
#: Long enough for any machine, short enough to notice that something hangs.
HANG_S = 30.0


class NobodyDriver:
    """Another driver, run by the user `nobody` in a process of its own for each call."""

    def __init__(self, make: Callable[[], SandboxDriver]) -> None:
        self._make = make
        self.name = "bubblewrap"
        self.isolates = True

    def run(self, request: SandboxRequest, cancel: CancelToken) -> SandboxReport:
        report: SandboxReport = self._call(lambda driver: driver.run(request, cancel))
        return report

    def close_workspace(self, key: str) -> None:
        self._call(lambda driver: driver.close_workspace(key))

    def sweep(self, *, idle_s: float) -> int:
        removed: int = self._call(lambda driver: driver.sweep(idle_s=idle_s))
        return removed

    def _call(self, use: Callable[[SandboxDriver], Any]) -> Any:
        read_fd, write_fd = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
            pid = os.fork()
        if pid == 0:
            answer: Any = RuntimeError("nothing came back")
            try:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                answer = use(self._make())
            except BaseException as error:  # noqa: BLE001 - it is raised in the parent
                answer = error
            finally:
                with os.fdopen(write_fd, "wb") as pipe:
                    pickle.dump(answer, pipe)
                os._exit(0)
        os.close(write_fd)
        with os.fdopen(read_fd, "rb") as pipe:
            answer = pickle.load(pipe)
        os.waitpid(pid, 0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


#: Says what this machine lacks, in the words of what looked for it. That nothing is overlooked is a
#: test of its own: `test_cgroups_are_found_where_the_kernel_gives_them`.
needs_cgroups = pytest.mark.skipif(
    not CgroupFactory().limits_memory, reason=f"no cgroups: {find_cgroups()[0].reason}"
)


def on_drivers(*kinds: object) -> pytest.MarkDecorator:
    """Run a test on these drivers alone: what it tries is not promised by the others."""
    return pytest.mark.parametrize("any_driver", kinds, indirect=True, scope="module")


@contextlib.contextmanager
def sandbox_folder() -> Iterator[Path]:
    """Yield a folder that a sandbox's user can pass through, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="tangram-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        for mounted in folder.glob("**/workspaces"):
            if mounted.is_mount():
                subprocess.run(["umount", mounted], check=True)
        shutil.rmtree(folder)


def make_bubblewrap(folder: Path) -> BubblewrapDriver:
    return BubblewrapDriver(
        bwrap_path=find_bwrap(),
        base_dir=folder / "bubblewrap",
        sandbox_uid=SANDBOX_UID,
        workspaces_bytes=WORKSPACES_BYTES,
    )


def cgroups_of(pid: int) -> list[Path]:
    """Return the cgroups that a process made for its actions and that are still there."""
    _, parents = find_cgroups()
    return [path for parent in parents.values() for path in parent.glob(f"tangram-*.{pid}.*")]


def kernel_gives_cgroups() -> bool:
    """Try whether a cgroup made below this process's own can bound memory and processes.

    Nothing of the project is asked. Only the usual place of the hierarchies is tried.
    """
    paths = {}
    for line in Path("/proc/self/cgroup").read_text("utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        paths[controllers] = path.lstrip("/")
    top = Path("/sys/fs/cgroup")
    v1_limits = {"memory": "memory.limit_in_bytes", "pids": "pids.max"}
    v1 = [(top / name / paths.get(name, ""), (limit,)) for name, limit in v1_limits.items()]
    v2 = (top / paths.get("", ""), ("memory.max", "pids.max"))
    return all(_gives_files(*each) for each in v1) or _gives_files(*v2)


def _gives_files(parent: Path, names: tuple[str, ...]) -> bool:
    child = parent / f"tangram-test-probe-{os.getpid()}"
    try:
        child.mkdir()
    except OSError:
        return False
    try:
        return all((child / name).exists() for name in names)
    finally:
        child.rmdir()


def make_driver_of_kind(kind: str, folder: Path) -> tuple[SandboxDriver, bool]:
    """Return one of `DRIVERS`, and whether it uses cgroups; skip the test if it cannot be had."""
    # CI installs it: a skip there would hide that it did not.
    if kind.startswith("bubblewrap") and not shutil.which("bwrap") and "CI" not in os.environ:
        pytest.skip("bwrap is not installed")
    has_cgroups = CgroupFactory().limits_memory
    if kind == "bubblewrap":
        return make_bubblewrap(folder), has_cgroups
    if kind == "bubblewrap-nobody":
        if os.geteuid() != 0:
            pytest.skip("only root can become another user")
        home = folder / "nobody"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        return NobodyDriver(partial(make_bubblewrap, home)), False
    use_cgroups = kind == "process"
    driver = ProcessDriver(base_dir=folder / kind, use_cgroups=use_cgroups)
    return driver, use_cgroups and has_cgroups


@dataclass
class Sandboxes:
    """A driver with the request fields that most tests do not care for."""

    driver: SandboxDriver
    #: True where memory and processes are bounded for the action as a whole.
    has_cgroups: bool
    #: Keys to close at the end.
    keys: list[str] = field(default_factory=list)

    def run(
        self,
        *argv: str,
        key: str | None = None,
        timeout_s: float = HANG_S,
        cancel: CancelToken | None = None,
        **fields: Any,
    ) -> SandboxReport:
        """Run a program; `fields` go to the request if it has them, else to the command."""
        options: dict[str, Any] = {
            "core_ids": tuple(sorted(os.sched_getaffinity(0))),
            "memory_bytes": 512 * MIB,
            "disk_bytes": 32 * MIB,
            "max_processes": 64,
            "output_limit_bytes": 1 * MIB,
        }
        for name in [name for name in fields if name in options or name == "grant_env"]:
            options[name] = fields.pop(name)
        if key is not None:
            self.keys.append(key)
        request = SandboxRequest(
            command=Command(argv=argv, **fields),
            workspace_key=key,
            timeout_s=timeout_s,
            **options,
        )
        if cancel is not None:
            return self.driver.run(request, cancel)
        with CancelToken() as token:
            return self.driver.run(request, token)

    def close(self) -> None:
        for key in self.keys:
            self.driver.close_workspace(key)
