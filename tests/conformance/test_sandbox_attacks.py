"""What a hostile program can do to the machine, its worker and others from inside bubblewrap."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangram_workers.domain.errors import SandboxError, SettingsError
from tangram_workers.domain.resources import MIB
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.sandbox.bubblewrap import BubblewrapDriver
from tangram_workers.sandbox.cgroups import CgroupFactory
from tangram_workers.sandbox.protocol import Ending, SandboxDriver
from tangram_workers.sandbox.workspaces import Workspaces
from tests.support.processes import find_processes, make_marker
from tests.support.sandboxes import (
    DRIVERS,
    SANDBOX_UID,
    Sandboxes,
    cgroups_of,
    make_bubblewrap,
    make_driver_of_kind,
    needs_cgroups,
    on_drivers,
)
from tests.support.waiting import wait_until

# CI installs it: a skip there would hide that it did not.
pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and "CI" not in os.environ, reason="bwrap is not installed"
)

PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module", params=[kind for kind in DRIVERS if kind.startswith("bubblewrap")])
def any_driver(request: pytest.FixtureRequest, folder: Path) -> tuple[SandboxDriver, bool]:
    """Every driver that isolates, and whether it uses cgroups."""
    return make_driver_of_kind(request.param, folder)


@pytest.fixture
def sandboxes(sandboxes: Sandboxes) -> Iterator[Sandboxes]:
    """A driver, which after each attack must still do its work."""
    yield sandboxes
    assert sandboxes.run("echo", "alive").stdout == b"alive\n"


def run_python(sandboxes: Sandboxes, program: str, **fields: object) -> str:
    """Run a program that prints what it managed to do; return that."""
    report = sandboxes.run(PYTHON, "-c", program, **fields)  # type: ignore[arg-type]
    assert (report.ending, report.exit_code) == (Ending.EXITED, 0), report
    return report.stdout.decode().strip()


def attempts(*statements: str) -> str:
    """Return a program that prints each statement's number if it succeeds."""
    tries = "\n".join(
        f"try:\n    {statement}\n    print({number})\nexcept OSError: pass"
        for number, statement in enumerate(statements)
    )
    return f"import ctypes, os, signal, socket\nlibc = ctypes.CDLL(None, use_errno=True)\n{tries}"


def test_there_is_no_network(sandboxes: Sandboxes) -> None:
    program = attempts(
        "socket.create_connection(('1.1.1.1', 53), timeout=2)",
        "socket.create_connection(('169.254.169.254', 80), timeout=2)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('8.8.8.8', 53))",
    )
    assert run_python(sandboxes, program) == ""
    program = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert run_python(sandboxes, program) == "['lo']"


def test_services_of_the_host_are_not_reachable(sandboxes: Sandboxes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = attempts(f"socket.create_connection(('127.0.0.1', {port}), timeout=2)")
        assert run_python(sandboxes, program) == ""


def test_abstract_sockets_of_the_host_are_not_reachable(sandboxes: Sandboxes, marker: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{marker}")
        server.listen()
        program = attempts(f"socket.socket(socket.AF_UNIX).connect('\\0{marker}')")
        assert run_python(sandboxes, program) == ""


def test_processes_of_the_host_are_invisible(sandboxes: Sandboxes) -> None:
    program = "import os; print(sorted(int(n) for n in os.listdir('/proc') if n.isdecimal()))"
    assert len(run_python(sandboxes, program).split(",")) == 2  # the sandbox's first, and itself


def test_secrets_of_the_worker_are_in_no_environment(
    sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANGRAM_BROKER_URL", "redis://:hunter2@host/0")
    script = "cat /proc/*/environ /proc/*/cmdline; env"
    report = sandboxes.run("sh", "-c", script)
    assert b"PATH=" in report.stdout
    assert b"hunter2" not in report.stdout + report.stderr
    assert b"TANGRAM_BROKER_URL" not in report.stdout


def test_variables_are_not_among_the_arguments_that_others_can_read(
    sandboxes: Sandboxes, marker: str
) -> None:
    # Of this test alone: a search of all processes would find another test's word too.
    secret, seen = make_marker(), list[tuple[int, str]]()

    with CancelToken() as cancel:

        def look() -> None:
            wait_until(lambda: find_processes(f"sleep\0{marker}"))
            seen.extend(find_processes(secret))
            cancel.set()

        thread = threading.Thread(target=look)
        thread.start()
        sandboxes.run("sleep", marker, env={"SECRET": secret}, cancel=cancel)
        thread.join()
    assert seen == []


def test_host_files_are_not_there(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("ls", "-A", "/")
    expected = {"bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "tmp", "usr", "var"}
    assert set(report.stdout.decode().split()) - {"lib32", "libx32", ".tangram-files"} <= (
        expected | {"workspace"}
    )
    assert sandboxes.run("ls", "/root", "/home", "/etc/shadow", "/run").stdout == b""


def test_everything_but_the_workspace_and_tmp_is_read_only(sandboxes: Sandboxes) -> None:
    folders = ("/", "/usr", "/usr/bin", "/etc", "/dev", "/proc", "/var", "/bin", "/lib")
    program = attempts(*(f"open('{folder}/x', 'w')" for folder in folders))
    assert run_python(sandboxes, program) == ""
    writable = ("/workspace", "/tmp", "/var/tmp", "/dev/shm")
    program = attempts(*(f"open('{folder}/x', 'w')" for folder in writable))
    assert run_python(sandboxes, program).split() == ["0", "1", "2", "3"]


def test_own_configuration_cannot_be_changed(sandboxes: Sandboxes) -> None:
    program = attempts("open('/etc/passwd', 'a')", "os.unlink('/etc/passwd')", "os.chmod('/', 511)")
    assert run_python(sandboxes, program) == ""


def test_mounts_devices_and_owners_are_refused(sandboxes: Sandboxes) -> None:
    program = attempts(
        "os.mknod('/tmp/disk', 0o600 | 0o060000, os.makedev(8, 0))",
        "os.chown('/workspace', 0, 0)",
        "os.setuid(0)",
        "os.setgid(0)",
        "os.setgroups([0])",
        "os.chroot('/tmp')",
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
        "socket.sethostname('x')",
        "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh')",
        "open('/proc/sysrq-trigger', 'w').write('c')",
        "os.kill(1, 0) if not libc.mount(b'x', b'/tmp', b'tmpfs', 0, None) else open('/nothing')",
    )
    assert run_python(sandboxes, program) == ""


def test_no_program_gains_rights(sandboxes: Sandboxes) -> None:
    script = (
        "grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status;"
        "cp /bin/sh own; chmod 4755 own; ./own -p -c 'id -u'"
    )
    lines = sandboxes.run("sh", "-c", script).stdout.decode().split()
    assert lines[-1] == "1000"
    values = dict(zip(lines[0:-1:2], lines[1:-1:2], strict=True))
    assert values.pop("NoNewPrivs:") == "1"
    assert set(values.values()) == {"0" * 16}


def test_nested_user_namespaces_are_refused(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("unshare", "--user", "--map-root-user", "true")
    assert report.exit_code != 0
    # By clone too: the filter of system calls refuses unshare already, and cannot refuse this one.
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    new_user_namespace = 0x10000000 | signal.SIGCHLD
    program = (
        "import ctypes, os\n"
        f"pid = ctypes.CDLL(None).syscall({number}, {new_user_namespace}, 0, 0, 0, 0)\n"
        "if pid == 0: os._exit(0)\n"
        "print(pid)\n"
    )
    assert run_python(sandboxes, program) == "-1"


# Of keyctl, bpf, perf_event_open, userfaultfd and setns, from the kernel's tables.
CALLS = {"x86_64": [250, 321, 298, 323, 308], "aarch64": [219, 280, 241, 282, 268]}


@pytest.mark.skipif(
    os.uname().machine not in CALLS, reason="the filter knows x86_64 and aarch64 only"
)
def test_wide_doors_of_the_kernel_are_shut(sandboxes: Sandboxes) -> None:
    calls = CALLS[os.uname().machine]
    program = (
        "import ctypes, errno\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"for number in {[*calls, 425]}:\n"
        "    assert libc.syscall(number, 0, 0, 0, 0, 0) == -1\n"
        "    print(errno.errorcode[ctypes.get_errno()])\n"
    )
    assert run_python(sandboxes, program).split() == ["EPERM"] * len(calls) + ["ENOSYS"]


def test_other_workspaces_cannot_be_seen(sandboxes: Sandboxes, marker: str) -> None:
    sandboxes.run("sh", "-c", f"echo {marker} >secret", key="victim")
    script = f"grep -rs {marker} /workspace /tmp /dev/shm /var /etc; cat /proc/self/mountinfo"
    report = sandboxes.run("sh", "-c", script, key="attacker", env={"X": "1"})
    assert marker.encode() + b"\n" not in report.stdout


def test_a_link_in_the_workspace_leads_nowhere_on_the_host(
    sandboxes: Sandboxes, folder: Path, marker: str
) -> None:
    target = folder / f"target-{marker}"
    target.mkdir(mode=0o777)
    target.chmod(0o777)
    sandboxes.run("ln", "-s", str(target), "d", key="one")
    report = sandboxes.run("true", files={"d/planted": "x"}, key="one")
    assert report.exit_code == 126
    assert list(target.iterdir()) == []
    target.rmdir()


def test_host_files_outlive_the_closing_of_a_workspace_full_of_links(
    sandboxes: Sandboxes, folder: Path, marker: str
) -> None:
    target = folder / f"target-{marker}"
    target.mkdir(mode=0o777)
    (target / "kept").write_text("x")
    target.chmod(0o755)
    sandboxes.run(
        "sh", "-c", f"ln -s {target} d; mkdir e; ln -s {target} e/d; chmod 0 e", key="one"
    )
    sandboxes.driver.close_workspace("one")
    assert (target / "kept").read_text() == "x"
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    shutil.rmtree(target)


@pytest.mark.parametrize("place", ["/workspace", "/tmp", "/dev/shm"])
def test_disk_fill_is_bounded(sandboxes: Sandboxes, place: str) -> None:
    report = sandboxes.run("dd", "if=/dev/zero", f"of={place}/big", "bs=1M", "count=200")
    assert report.exit_code == 1
    assert b"No space left on device" in report.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount what bounds lasting workspaces")
@on_drivers("bubblewrap")
@pytest.mark.parametrize(
    "program",
    [
        "open('/workspace/big', 'wb').write(bytes(100 * 2**20))",
        "for i in range(100000): open(f'/workspace/{i}', 'w').close()",
    ],
    ids=["bytes", "inodes"],
)
def test_filling_lasting_workspaces_is_bounded_and_ends_with_them(
    sandboxes: Sandboxes, program: str
) -> None:
    report = sandboxes.run(PYTHON, "-c", program, key="hostile")
    assert (report.ending, report.exit_code) == (Ending.EXITED, 1)
    assert b"No space left on device" in report.stderr
    # Who has no trajectory is not touched by it, and closing gives all of it back.
    honest = ("dd", "if=/dev/zero", "of=file", "bs=1M", "count=8")
    assert sandboxes.run(*honest).exit_code == 0
    sandboxes.driver.close_workspace("hostile")
    assert sandboxes.run(*honest, key="other").exit_code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts workspaces")
@on_drivers("bubblewrap")
def test_many_workspaces_are_one_mount(sandboxes: Sandboxes, folder: Path) -> None:
    for number in range(20):
        assert sandboxes.run("true", key=f"many-{number}").exit_code == 0
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    assert mounts.count(str(folder)) == 1
    for number in range(20):
        sandboxes.driver.close_workspace(f"many-{number}")
    sandboxes.driver.sweep(idle_s=0)
    assert str(folder) not in Path("/proc/self/mounts").read_text(encoding="utf-8")


@needs_cgroups
@on_drivers("bubblewrap")
def test_inode_fill_ends_with_the_action(sandboxes: Sandboxes) -> None:
    program = "for i in range(10**9): open(f'/workspace/{i}', 'w').close()"
    report = sandboxes.run(PYTHON, "-c", program, memory_bytes=64 * MIB)
    assert report.ending is Ending.OOM


def test_input_cannot_be_grown(sandboxes: Sandboxes) -> None:
    program = attempts(
        "os.truncate('/proc/self/fd/0', 10**9)", "os.write(os.open('/proc/self/fd/0', 2), b'x')"
    )
    assert run_python(sandboxes, program, stdin="x") == ""


def test_killing_everything_in_sight_harms_only_itself(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "echo on; kill -9 1; kill -9 -1; kill -9 $$")
    assert report.stdout == b"on\n"
    assert report.exit_code == 137


def test_stopping_everything_in_sight_meets_the_time_limit(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "kill -STOP -1; kill -STOP $$", timeout_s=0.5)
    assert report.ending is Ending.TIMED_OUT


def test_threads_and_sessions_without_end_are_gone(sandboxes: Sandboxes, marker: str) -> None:
    program = (
        "import os, sys\n"
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "    except OSError:\n"
        "        pass\n"
    )
    report = sandboxes.run(PYTHON, "-c", program, marker, timeout_s=1.0, max_processes=32)
    assert report.ending is Ending.TIMED_OUT
    assert find_processes(marker) == []


def test_program_cannot_pose_as_the_sandbox(sandboxes: Sandboxes) -> None:
    script = "for fd in 3 4 5 6 7 8 9; do echo '{ \"exit-code\": 0 }' >&$fd; done; exit 9"
    assert sandboxes.run("sh", "-c", script).exit_code in (2, 9)


def test_core_dumps_are_off(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "ulimit -c; ulimit -H -c")
    assert report.stdout == b"0\n0\n"


# --- the driver itself -------------------------------------------------------------------------


def test_sandbox_failure_is_not_the_programs(folder: Path) -> None:
    fake = folder / "bwrap"
    fake.write_text("#!/bin/sh\n[ \"$1\" = --help ] && echo --size\necho 'bwrap: no' >&2; exit 1\n")
    fake.chmod(0o755)
    with pytest.raises(SandboxError, match=r"bwrap: no.*user namespaces"):
        BubblewrapDriver(
            bwrap_path=str(fake),
            base_dir=folder / "fake",
            sandbox_uid=SANDBOX_UID,
            workspaces_bytes=MIB,
        )


def test_cores_that_are_not_ours_are_a_sandbox_error(folder: Path) -> None:
    with pytest.raises(SandboxError, match=r"cores \[1000\] cannot be started"):
        Sandboxes(make_bubblewrap(folder), has_cgroups=False).run("true", core_ids=(1000,))


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root's sandboxes run as another user, whom a private folder would shut out",
)
def test_folder_that_the_sandbox_cannot_pass_through_is_refused(folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(SettingsError, match=r"TANGRAM_SANDBOX_DIR.*private"):
        Workspaces(private / "base", owner_uid=SANDBOX_UID, total_bytes=MIB)


def test_folder_that_somebody_else_laid_is_refused(folder: Path) -> None:
    link = folder / "link"
    link.symlink_to(folder)
    with pytest.raises(SettingsError, match="is not a folder of user"):
        Workspaces(link, owner_uid=None, total_bytes=MIB)


def test_killed_worker_takes_its_sandboxes_along(folder: Path, marker: str) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.support.sandboxes import *\n"
        "driver = make_bubblewrap(Path(sys.argv[1]))\n"
        "Sandboxes(driver, False).run('sh', '-c', 'setsid sleep $0 & sleep $0', sys.argv[2])\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, str(folder), marker])
    wait_until(lambda: len(find_processes(f"sleep\0{marker}")) == 2)
    assert cgroups_of(worker.pid) != [] or not CgroupFactory().limits_memory
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    wait_until(lambda: not find_processes(marker))
    make_bubblewrap(folder).sweep(idle_s=3600)
    assert cgroups_of(worker.pid) == []
