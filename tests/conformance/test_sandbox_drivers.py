"""What every sandbox driver does, on good days and bad."""

from __future__ import annotations

import os
import threading

import pytest

from tangram_workers.domain.resources import MIB
from tangram_workers.runtime.cancel import CancelToken
from tangram_workers.sandbox.cgroups import CgroupFactory
from tangram_workers.sandbox.protocol import Ending
from tests.support.processes import find_processes
from tests.support.sandboxes import (
    HANG_S,
    Sandboxes,
    kernel_gives_cgroups,
    needs_cgroups,
    on_drivers,
)
from tests.support.waiting import wait_until

PYTHON = "/usr/bin/python3"
DAEMON = (
    "import os, sys\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        os.execvp('sleep', ['sleep', sys.argv[1]])\n"
    "    os._exit(0)\n"
    "print('done')\n"
)
# As above, but it becomes another program again and again. Left alone it ends after 10 s of CPU.
RESTLESS_DAEMON = DAEMON.replace(
    "'sleep', ['sleep', ",
    """'sh', ['sh', '-c', *['ulimit -t 10; exec sh -c "$0" "$0" "$1"'] * 2, """,
)
# It has another process id every moment: each process of a long line starts the next and ends.
FLEETING_DAEMON = (
    "import os, sys\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    for _ in range(200):\n"
    "        if os.fork() != 0:\n"
    "            os._exit(0)\n"
    "    os.execvp('sleep', ['sleep', sys.argv[1]])\n"
    "print('done')\n"
)


# --- the ordinary ------------------------------------------------------------------------------


def test_stdout_and_stderr_are_kept_apart(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "echo out; echo err >&2")
    assert (report.stdout, report.stderr) == (b"out\n", b"err\n")
    assert (report.ending, report.exit_code) == (Ending.EXITED, 0)


@pytest.mark.parametrize("code", [0, 1, 3, 126, 127, 137, 255])
def test_exit_code_is_the_programs(sandboxes: Sandboxes, code: int) -> None:
    report = sandboxes.run("sh", "-c", f"exit {code}")
    assert (report.ending, report.exit_code) == (Ending.EXITED, code)


@pytest.mark.parametrize("number", [6, 9, 11, 15])
def test_death_by_signal_is_reported_as_a_shell_does(sandboxes: Sandboxes, number: int) -> None:
    program = f"import os; os.kill(os.getpid(), {number})"
    report = sandboxes.run(PYTHON, "-c", program)
    assert (report.ending, report.exit_code) == (Ending.EXITED, 128 + number)


def test_missing_program_is_127(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("no-such-program")
    assert (report.ending, report.exit_code) == (Ending.EXITED, 127)
    assert b"no-such-program: not found" in report.stderr


def test_file_that_cannot_be_executed_is_126(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("./notes.txt", files={"notes.txt": "hello"})
    assert report.exit_code == 126
    assert b"Permission denied" in report.stderr


def test_missing_folder_is_a_clear_failure(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("pwd", cwd="no/such/folder")
    assert (report.ending, report.exit_code) == (Ending.EXITED, 126)
    assert b"no/such/folder" in report.stderr


def test_program_starts_in_its_folder(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "cat here", files={"a b/-c/here": "1"}, cwd="a b/-c")
    assert report.stdout == b"1"


def test_program_starts_in_the_empty_workspace(sandboxes: Sandboxes) -> None:
    assert sandboxes.run("ls", "-A").stdout == b""


def test_files_arrive_unchanged(sandboxes: Sandboxes) -> None:
    everything = "".join(chr(code) for code in range(1, 0x3000)) + "\U0001f600"
    files = {"a.txt": everything, "b/c/it's $(x).txt": "no line end", "empty": "", "-n": "\n\n"}
    report = sandboxes.run("cat", "./-n", "empty", "b/c/it's $(x).txt", "a.txt", files=files)
    assert report.stdout == b"\n\nno line end" + everything.encode()


def test_large_file_arrives(sandboxes: Sandboxes) -> None:
    content = "0123456789abcde\n" * (3 * MIB // 16)
    report = sandboxes.run("sha256sum", "big", files={"big": content})
    assert report.exit_code == 0
    report = sandboxes.run("wc", "-c", "big", files={"big": content})
    assert report.stdout.split()[0] == str(len(content)).encode()


def test_file_that_cannot_be_written_is_a_clear_failure(sandboxes: Sandboxes) -> None:
    sandboxes.run("mkdir", "a", key="one")
    report = sandboxes.run("true", files={"a": "1"}, key="one")
    assert (report.ending, report.exit_code) == (Ending.EXITED, 126)
    assert report.stderr != b""


def test_stdin_is_given(sandboxes: Sandboxes) -> None:
    text = "line\n" * 100_000
    assert sandboxes.run("wc", "-c", stdin=text).stdout.strip() == str(len(text)).encode()


def test_no_stdin_is_an_empty_one(sandboxes: Sandboxes) -> None:
    assert sandboxes.run("cat").exit_code == 0


def test_commands_variables_win_over_the_grants(sandboxes: Sandboxes) -> None:
    report = sandboxes.run(
        "sh",
        "-c",
        "echo $A $B $C",
        grant_env={"A": "grant", "B": "grant"},
        env={"B": "own", "C": "own"},
    )
    assert report.stdout == b"grant own own\n"


def test_variable_of_an_odd_name_arrives(sandboxes: Sandboxes) -> None:
    program = "import os; print(os.environ['a-b.c'])"
    assert sandboxes.run(PYTHON, "-c", program, env={"a-b.c": "odd"}).stdout == b"odd\n"


def test_workers_variables_are_not_the_programs(
    sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANGRAM_BROKER_URL", "redis://:hunter2@host/0")
    report = sandboxes.run("env")
    assert b"hunter2" not in report.stdout
    assert b"PATH=/usr/local/bin:/usr/bin:/bin" in report.stdout


def test_program_runs_on_the_granted_cores(sandboxes: Sandboxes) -> None:
    core_id = max(os.sched_getaffinity(0))
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    report = sandboxes.run(PYTHON, "-c", program, core_ids=(core_id,))
    assert report.stdout == f"[{core_id}]\n".encode()
    assert sandboxes.run("nproc", core_ids=(core_id,)).stdout == b"1\n"


def test_program_has_three_descriptors_and_no_more(sandboxes: Sandboxes) -> None:
    # Listing a folder takes a descriptor itself.
    program = "import os; print([fd for fd in os.listdir('/proc/self/fd')])"
    report = sandboxes.run(PYTHON, "-c", program, stdin="x", files={"a": "1"})
    assert report.stdout == b"['0', '1', '2', '3']\n"


def test_program_may_open_its_output_by_name(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "echo a >/dev/stdout; echo b >/dev/stderr")
    assert (report.stdout, report.stderr) == (b"a\n", b"b\n")


def test_what_it_used_is_reported(sandboxes: Sandboxes) -> None:
    program = "x = bytearray(60_000_000); y = sum(range(3_000_000))"
    report = sandboxes.run(PYTHON, "-c", program)
    assert report.exit_code == 0
    assert report.run_s > 0
    if sandboxes.has_cgroups:
        assert 0 < report.cpu_s <= report.run_s * len(os.sched_getaffinity(0)) * 1.1
        assert 60_000_000 < report.peak_memory_bytes < 512 * MIB


def test_many_threads_run_at_once(sandboxes: Sandboxes) -> None:
    outputs: dict[int, bytes] = {}

    def work(number: int) -> None:
        outputs[number] = sandboxes.run("echo", str(number)).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: f"{number}\n".encode() for number in range(16)}


# --- bad days ----------------------------------------------------------------------------------


def test_flood_is_cut_and_read_to_its_end(sandboxes: Sandboxes) -> None:
    report = sandboxes.run(
        "sh", "-c", "echo first; head -c 1000000000 /dev/zero; echo err >&2; exit 5"
    )
    assert report.exit_code == 5
    assert report.stdout.startswith(b"first\n")
    assert (len(report.stdout), report.stdout_truncated) == (1 * MIB, True)
    assert (report.stderr, report.stderr_truncated) == (b"err\n", False)


def test_output_of_exactly_the_limit_is_whole(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("head", "-c", "4096", "/dev/zero", output_limit_bytes=4096)
    assert (len(report.stdout), report.stdout_truncated) == (4096, False)


def test_endless_flood_meets_its_time_limit(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "yes & yes >&2", timeout_s=0.5)
    assert (report.ending, report.exit_code) == (Ending.TIMED_OUT, None)
    assert report.stdout_truncated
    assert report.stderr_truncated


def test_time_limit_keeps_what_was_printed(sandboxes: Sandboxes, marker: str) -> None:
    report = sandboxes.run("sh", "-c", f"echo partial; exec sleep {marker}", timeout_s=0.5)
    assert (report.ending, report.exit_code) == (Ending.TIMED_OUT, None)
    assert report.stdout == b"partial\n"
    assert 0.5 <= report.run_s < HANG_S
    assert find_processes(marker) == []


def test_program_that_ignores_sigterm_is_stopped(sandboxes: Sandboxes, marker: str) -> None:
    script = f"trap '' TERM INT HUP; setsid sleep {marker} & echo on; sleep {marker}"
    report = sandboxes.run("sh", "-c", script, timeout_s=0.5)
    assert report.ending is Ending.TIMED_OUT
    assert report.stdout == b"on\n"
    assert find_processes(marker) == []


def test_daemon_that_holds_stdout_is_stopped_with_its_program(
    sandboxes: Sandboxes, marker: str
) -> None:
    report = sandboxes.run(PYTHON, "-c", DAEMON, marker)
    assert (report.ending, report.exit_code, report.stdout) == (Ending.EXITED, 0, b"done\n")
    assert find_processes(marker) == []


def test_daemon_that_becomes_program_after_program_is_stopped(
    sandboxes: Sandboxes, marker: str
) -> None:
    """A process has no environment to be known by while it is becoming another program."""
    for _ in range(20):
        report = sandboxes.run(PYTHON, "-c", RESTLESS_DAEMON, marker)
        assert (report.ending, report.exit_code, report.stdout) == (Ending.EXITED, 0, b"done\n")
        assert find_processes(marker) == []


def test_daemon_that_passes_from_process_to_process_is_stopped(
    sandboxes: Sandboxes, marker: str
) -> None:
    """A list of the processes is old as soon as it is read: the one it names has a child by now."""
    for _ in range(5):
        report = sandboxes.run(PYTHON, "-c", FLEETING_DAEMON, marker)
        assert (report.ending, report.exit_code, report.stdout) == (Ending.EXITED, 0, b"done\n")
        assert find_processes(marker) == []


def test_cancel_stops_it_and_keeps_what_was_printed(sandboxes: Sandboxes, marker: str) -> None:
    with CancelToken() as cancel:

        def cancel_once_it_sleeps() -> None:
            wait_until(lambda: find_processes(f"sleep\0{marker}"))
            cancel.set()

        threading.Thread(target=cancel_once_it_sleeps).start()
        report = sandboxes.run(
            "sh", "-c", f"echo partial; exec sleep {marker}", cancel=cancel, timeout_s=HANG_S
        )
    assert (report.ending, report.exit_code) == (Ending.CANCELLED, None)
    assert report.stdout == b"partial\n"
    assert find_processes(marker) == []


def test_cancel_before_the_start_leaves_nothing(sandboxes: Sandboxes, marker: str) -> None:
    for _ in range(20):
        with CancelToken() as cancel:
            cancel.set()
            report = sandboxes.run("sleep", marker, cancel=cancel)
        assert report.ending is Ending.CANCELLED
        assert find_processes(marker) == []


@pytest.mark.parametrize("limit_ms", range(1, 12))
def test_time_limit_while_it_is_being_started_leaves_nothing(
    sandboxes: Sandboxes, marker: str, limit_ms: int
) -> None:
    report = sandboxes.run("sleep", marker, timeout_s=limit_ms / 1000)
    assert report.ending is Ending.TIMED_OUT
    assert find_processes(marker) == []


def test_early_exit_without_clean_up_is_an_exit(sandboxes: Sandboxes) -> None:
    report = sandboxes.run(PYTHON, "-c", "import os; print('lost'); os._exit(0)")
    assert (report.ending, report.exit_code, report.stdout) == (Ending.EXITED, 0, b"")


def test_bytes_that_are_not_text_are_kept(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("printf", r"\377\376\200ok")
    assert report.stdout == b"\xff\xfe\x80ok"


def test_closed_outputs_do_not_end_the_wait(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 7")
    assert (report.exit_code, report.stdout, report.stderr) == (7, b"", b"")
    assert report.run_s >= 0.2


def test_too_many_arguments_are_a_clear_failure(sandboxes: Sandboxes) -> None:
    report = sandboxes.run("echo", *["x"] * 400_000)
    assert (report.ending, report.exit_code) == (Ending.EXITED, 126)
    assert b"Argument list too long" in report.stderr


def test_nearly_too_many_variables_arrive(sandboxes: Sandboxes) -> None:
    env = {f"V{number}": "x" * 90_000 for number in range(11)}
    report = sandboxes.run("sh", "-c", "echo ${#V10}", env=env)
    assert report.stdout == b"90000\n"


def test_cgroups_are_found_where_the_kernel_gives_them() -> None:
    """Else the tests that need them would be skipped for a fault of the project's own."""
    found = CgroupFactory()
    assert found.limits_memory or not kernel_gives_cgroups(), found.probe.reason
    assert found.limits_memory or found.probe.reason, "it does not say why there are none"


@needs_cgroups
@on_drivers("bubblewrap", "process")
def test_memory_hog_ends_as_oom(sandboxes: Sandboxes) -> None:
    program = "x = bytearray(400_000_000)"
    report = sandboxes.run(PYTHON, "-c", program, memory_bytes=64 * MIB)
    assert (report.ending, report.exit_code) == (Ending.OOM, None)
    assert report.peak_memory_bytes <= 64 * MIB


@on_drivers("bubblewrap-nobody", "process-bare")
def test_memory_hog_is_refused_memory_where_there_are_no_cgroups(sandboxes: Sandboxes) -> None:
    report = sandboxes.run(PYTHON, "-c", "x = bytearray(400_000_000)", memory_bytes=128 * MIB)
    assert (report.ending, report.exit_code) == (Ending.EXITED, 1)
    assert b"MemoryError" in report.stderr


@needs_cgroups
@on_drivers("bubblewrap", "process")
def test_hog_in_the_background_does_not_spoil_a_success(sandboxes: Sandboxes) -> None:
    script = f"{PYTHON} -c 'x = bytearray(400_000_000)'; exit 0"
    report = sandboxes.run("sh", "-c", script, memory_bytes=64 * MIB)
    assert (report.ending, report.exit_code) == (Ending.EXITED, 0)


@on_drivers(
    pytest.param("bubblewrap", marks=needs_cgroups),
    # Bounded by the limit of its user.
    "bubblewrap-nobody",
    pytest.param("process", marks=needs_cgroups),
)
def test_fork_bomb_is_bounded_and_gone_afterwards(sandboxes: Sandboxes, marker: str) -> None:
    script = f"bomb() {{ bomb | bomb & }}; bomb; sleep {marker}"
    report = sandboxes.run("sh", "-c", script, timeout_s=1.0, max_processes=40)
    assert report.ending in (Ending.TIMED_OUT, Ending.EXITED)
    assert find_processes(marker) == []
    assert sandboxes.run("echo", "alive").stdout == b"alive\n"


# --- workspaces --------------------------------------------------------------------------------


def test_workspace_lasts_from_run_to_run(sandboxes: Sandboxes) -> None:
    sandboxes.run("sh", "-c", "mkdir -m 0 shut; echo 1 >kept", key="one")
    assert sandboxes.run("cat", "kept", key="one").stdout == b"1\n"


def test_closed_workspace_is_empty_when_it_is_used_again(sandboxes: Sandboxes) -> None:
    sandboxes.run("sh", "-c", "mkdir -p a/b; echo 1 >a/b/c; chmod 0 a/b a", key="one")
    sandboxes.driver.close_workspace("one")
    assert sandboxes.run("ls", "-A", key="one").stdout == b""


def test_closing_an_unknown_workspace_is_fine(sandboxes: Sandboxes) -> None:
    sandboxes.driver.close_workspace("never used")


def test_workspaces_of_other_keys_are_others(sandboxes: Sandboxes) -> None:
    sandboxes.run("touch", "mine", key="one")
    assert sandboxes.run("ls", "-A", key="two").stdout == b""


def test_one_shot_workspace_vanishes(sandboxes: Sandboxes) -> None:
    sandboxes.run("touch", "mine")
    assert sandboxes.run("ls", "-A").stdout == b""


def test_key_may_be_any_text(sandboxes: Sandboxes) -> None:
    for key in ("../../etc", "a/b", "\N{SNOWMAN}" * 500, "x y\n"):
        sandboxes.run("touch", "f", key=key)
        assert sandboxes.run("ls", key=key).stdout == b"f\n"


def test_sweep_removes_idle_workspaces_only(sandboxes: Sandboxes) -> None:
    sandboxes.run("touch", "f", key="one")
    sandboxes.driver.sweep(idle_s=3600)
    assert sandboxes.run("ls", key="one").stdout == b"f\n"
    # Not "exactly one": it also removes what any other dead worker of this machine left.
    assert sandboxes.driver.sweep(idle_s=0) >= 1
    assert sandboxes.run("ls", "-A", key="one").stdout == b""


def test_workspace_in_use_is_neither_swept_nor_closed(sandboxes: Sandboxes, marker: str) -> None:
    stdout = b""
    with CancelToken() as cancel:

        def use() -> None:
            nonlocal stdout
            script = f"echo 1 >f; until [ -e go ]; do sleep 0.01; done; cat f; : {marker}"
            stdout = sandboxes.run("sh", "-c", script, key="one", cancel=cancel).stdout

        thread = threading.Thread(target=use)
        thread.start()
        wait_until(lambda: sandboxes.run("ls", key="one").stdout == b"f\n")
        sandboxes.driver.sweep(idle_s=0)
        sandboxes.driver.close_workspace("one")
        sandboxes.run("touch", "go", key="one")
        thread.join()
    assert stdout == b"1\n"


def test_workspace_closed_while_in_use_goes_with_its_last_user(
    sandboxes: Sandboxes, marker: str
) -> None:
    with CancelToken() as cancel:
        thread = threading.Thread(
            target=lambda: sandboxes.run(
                "sh", "-c", f"touch f; exec sleep {marker}", key="one", cancel=cancel
            )
        )
        thread.start()
        wait_until(lambda: find_processes(f"sleep\0{marker}"))
        sandboxes.driver.close_workspace("one")
        cancel.set()
        thread.join()
    assert sandboxes.run("ls", "-A", key="one").stdout == b""


def test_many_threads_make_one_workspace_once(sandboxes: Sandboxes) -> None:
    threads = [
        threading.Thread(target=sandboxes.run, args=("touch", str(number)), kwargs={"key": "one"})
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sandboxes.run("ls", key="one").stdout.split()) == 8
