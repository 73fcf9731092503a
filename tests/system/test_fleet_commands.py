"""`tangram up`, `down`, `status`, `run` and `worker` as a person types them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess

import pytest

from tangram_workers.runtime.fleet_file import FleetFile
from tangram_workers.runtime.processes import start_ticks
from tests.support.cli import Tangram, command
from tests.support.waiting import wait_until


def test_a_program_runs_and_its_result_is_one_line_of_json(tangram: Tangram) -> None:
    done = tangram("run", "--json", "--", "python3", "-c", "print(6*7)")
    assert done.code == 0
    assert done.json["outcome"] == "succeeded"
    assert done.json["stdout"] == "42\n"
    assert done.json["timings"]["act_s"] > 0


def test_output_and_exit_code_are_the_programs_own(tangram: Tangram) -> None:
    done = tangram("run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.code, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_running_too_long_has_the_exit_code_of_timeout(tangram: Tangram) -> None:
    done = tangram("run", "--timeout-s", "0.3", "--", "sleep", "60")
    assert done.code == 124
    assert "timed_out" in done.stderr


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--timeout-s", "nan", "timeout_s=nan"),
        ("--timeout-s", "-1", "timeout_s=-1"),
        ("--cores", "4:2", "max_units=2"),
        ("--cores", "many", "MIN:MAX"),
        ("--memory-mib", "-5", "memory_bytes"),
    ],
)
def test_bad_options_are_refused_with_the_mend(
    tangram: Tangram, option: str, value: str, words: str
) -> None:
    done = tangram("run", option, value, "--", "true")
    assert done.code == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_status_shows_the_worker_and_its_queue(tangram: Tangram) -> None:
    facts = tangram("status", "--json").json
    [worker] = facts["workers"].values()
    assert worker["queues"] == ["cpu"]
    assert worker["cores"] == len(os.sched_getaffinity(0))
    assert facts["waiting"] == {"cpu": 0}
    assert ":***@127.0.0.1:" in facts["broker"]


def test_the_state_file_is_private_and_redis_is_on_loopback(tangram: Tangram) -> None:
    mode = (tangram.data_dir / "fleet.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert stat.S_IMODE(tangram.data_dir.stat().st_mode) == 0o700
    fleet = FleetFile.read(tangram.data_dir)
    assert fleet is not None
    assert "@127.0.0.1:" in fleet.broker_url
    password = fleet.broker_url.split(":")[2].split("@")[0]
    assert len(password) >= 32
    # The password is on nobody's command line.
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "redis-server" in lines
    assert password not in lines


def test_a_second_fleet_in_the_same_folder_is_refused(tangram: Tangram) -> None:
    done = tangram("up")
    assert done.code == 2
    assert "tangram down" in done.stderr


def test_a_worker_can_join_from_another_terminal(tangram: Tangram) -> None:
    process = subprocess.Popen(
        command(["worker", "--name", "cpu@second", "--json"]),
        env=tangram.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: "cpu@second" in tangram("status", "--json").json["workers"])
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[0])["worker"] == "cpu@second"
    assert "cpu@second" not in tangram("status", "--json").json["workers"]


def test_up_in_the_foreground_stops_on_ctrl_c(no_fleet: Tangram) -> None:
    process = subprocess.Popen(
        command(["up", "--json"]), env=no_fleet.environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["pid"] == process.pid
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not (no_fleet.data_dir / "fleet.json").exists()


def test_when_the_supervisor_is_killed_nothing_of_the_fleet_stays(no_fleet: Tangram) -> None:
    pid = json.loads(no_fleet("up", "--detach", "--json").stdout)["pid"]
    children = _tree(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(_lives(child) for child in children))
    done = no_fleet("run", "--", "true")
    assert done.code == 2
    assert "tangram up" in done.stderr
    # And the folder can be used again.
    assert no_fleet("up", "--detach").code == 0
    assert no_fleet("run", "--", "echo", "back").stdout == "back\n"
    assert no_fleet("down").code == 0


def test_down_without_a_fleet_says_so(no_fleet: Tangram) -> None:
    done = no_fleet("down", "--json")
    assert done.code == 2
    assert done.json["error"] == "NoFleetError"


@pytest.mark.parametrize(
    "arguments",
    [["up"], ["run", "--", "true"], ["status"], ["worker"], ["doctor"], ["demo"]],
    ids=lambda arguments: arguments[0],
)
def test_a_misspelt_variable_stops_every_command_at_once(
    no_fleet: Tangram, arguments: list[str]
) -> None:
    done = no_fleet(*arguments, env={"TANGRAM_LEASES": "5"})
    assert done.code == 2
    assert "Did you mean TANGRAM_LEASE_S?" in done.stderr


def test_a_wrong_type_in_a_variable_names_it_and_its_value(no_fleet: Tangram) -> None:
    done = no_fleet("up", env={"TANGRAM_LEASE_S": "soon"})
    assert done.code == 2
    assert "TANGRAM_LEASE_S='soon'" in done.stderr


def test_a_broker_that_is_not_there_ends_within_its_bound(no_fleet: Tangram) -> None:
    done = no_fleet(
        "run",
        "--",
        "true",
        env={
            "TANGRAM_BROKER_URL": "redis://:secret@127.0.0.1:1/0",
            "TANGRAM_CONNECT_TIMEOUT_S": "1",
        },
        timeout_s=20,
    )
    assert done.code == 2
    assert "127.0.0.1:1" in done.stderr
    assert "secret" not in done.stderr + done.stdout


def test_doctor_finds_what_the_fleet_needs(no_fleet: Tangram) -> None:
    done = no_fleet("doctor", "--json")
    assert done.code == 0
    states = {check["name"]: check["status"] for check in done.json["checks"]}
    assert states["python"] == "ok"
    assert states["bubblewrap"] == "ok"


COMMANDS = ("up", "down", "demo", "worker", "run", "status", "doctor", "flower")


def test_the_help_lists_every_command(no_fleet: Tangram) -> None:
    listing = no_fleet("--help").stdout
    assert [name for name in COMMANDS if name not in listing] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(no_fleet: Tangram, name: str) -> None:
    help_text = no_fleet(name, "--help")
    assert help_text.code == 0
    assert "--json" in help_text.stdout


def _tree(pid: int) -> list[tuple[int, int]]:
    """Return the process's descendants, each with its start time."""
    found: list[tuple[int, int]] = []
    todo = [pid]
    while todo:
        parent = todo.pop()
        listed = subprocess.run(
            ["pgrep", "-P", str(parent)], capture_output=True, text=True, check=False
        ).stdout.split()
        for child in map(int, listed):
            found.append((child, start_ticks(child)))
            todo.append(child)
    return found


def _lives(process: tuple[int, int]) -> bool:
    try:
        return start_ticks(process[0]) == process[1]
    except ProcessLookupError:
        return False
