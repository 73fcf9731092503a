"""`tangram demo`: the main job, whole and in the odd corners."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import Tangram


def bare_path(folder: Path, *programs: str) -> str:
    """Return a PATH that has these programs and no others."""
    for program in programs:
        found = shutil.which(program)
        assert found is not None
        (folder / program).symlink_to(found)
    return str(folder)


@pytest.mark.alone  # tests beside it would slow both policies, and not alike
@pytest.mark.timeout(420)
def test_the_whole_step_gets_every_reward_right(no_fleet: Tangram, tmp_path: Path) -> None:
    picture = tmp_path / "timeline.png"
    done = no_fleet("demo", "--json", "--plot", str(picture), timeout_s=400)
    assert done.code == 0, done.stderr
    report = done.json
    assert report["problems"] == 164
    assert report["samples"] == 656
    for policy in (report, report["static"]):
        assert policy["undamaged_reward_mean"] == 1.0
        assert policy["damaged_reward_mean"] == 0.0
        assert policy["false_timeouts"] == 0
        assert policy["infrastructure_errors"] == 0
        assert policy["act_mean_s"] > 0
        assert policy["act_p99_s"] >= policy["act_mean_s"]
        assert policy["step_s"] > 0
    # Binding a core to a trajectory keeps it from others while the LLM thinks.
    assert report["ratio"]["act"] > 1
    assert report["ratio"]["step"] > 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not (no_fleet.data_dir / "fleet.json").exists()


def test_a_running_fleet_is_used(no_fleet: Tangram) -> None:
    assert no_fleet("up", "--detach").code == 0
    try:
        before = no_fleet("status", "--json").json["workers"]
        done = no_fleet("demo", "--json", "--problems", "2")
        assert done.code == 0
        assert done.json["samples"] == 8
        assert no_fleet("status", "--json").json["workers"] == before
    finally:
        assert no_fleet("down").code == 0


def test_without_bubblewrap_the_demo_says_so_and_runs(no_fleet: Tangram, tmp_path: Path) -> None:
    path = bare_path(tmp_path, "setpriv", "redis-server")
    done = no_fleet("demo", "--json", "--problems", "2", env={"PATH": path})
    assert done.code == 0
    assert "apt-get install bubblewrap" in done.stderr
    assert "`process` driver" in done.stderr
    assert done.json["undamaged_reward_mean"] == 1.0


def test_without_bubblewrap_a_fleet_asks_for_the_driver_by_name(
    no_fleet: Tangram, tmp_path: Path
) -> None:
    path = bare_path(tmp_path, "setpriv", "redis-server")
    refused = no_fleet("up", env={"PATH": path})
    assert refused.code == 2
    assert "apt-get install bubblewrap" in refused.stderr
    started = no_fleet("up", "--detach", "--sandbox", "process", env={"PATH": path})
    assert started.code == 0
    try:
        assert no_fleet("run", "--", "echo", "trusted").stdout == "trusted\n"
        log = (no_fleet.data_dir / "logs" / "worker.log").read_text(encoding="utf-8")
        assert "DOES NOT ISOLATE" in log
    finally:
        assert no_fleet("down").code == 0


def test_without_redis_on_path_the_wheels_server_carries_the_fleet(
    no_fleet: Tangram, tmp_path: Path
) -> None:
    path = bare_path(tmp_path, "setpriv", "bwrap")
    assert no_fleet("up", "--detach", env={"PATH": path}).code == 0
    try:
        assert no_fleet("run", "--", "echo", "carried").stdout == "carried\n"
        log = (no_fleet.data_dir / "logs" / "redis.log").read_text(encoding="utf-8")
        assert "version=6.2" in log
    finally:
        assert no_fleet("down").code == 0


def test_a_picture_that_cannot_be_written_is_told_before_the_work(no_fleet: Tangram) -> None:
    done = no_fleet("demo", "--plot", "timeline.docx", timeout_s=20)
    assert done.code == 2
    assert ".png" in done.stderr


def test_a_wrong_number_is_told_before_the_work(no_fleet: Tangram) -> None:
    done = no_fleet("demo", "--problems", "0")
    assert done.code == 2
    assert "problems=0" in done.stderr
