"""Two workers that believe to be on different machines."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangram_workers import Action, BlockingClient, Command, Outcome
from tangram_workers.local.fleet import Fleet
from tangram_workers.runtime.settings import load_settings
from tests.support.cli import command
from tests.support.sandboxes import sandbox_folder
from tests.support.waiting import wait_until


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[BlockingClient]:
    settings = load_settings(data_dir=tmp_path / "one", node="one")
    with (
        sandbox_folder() as second_folder,
        Fleet(settings) as fleet,
        BlockingClient(broker_url=fleet.url) as client,
    ):
        second = subprocess.Popen(
            command(["worker"]),
            env={
                **os.environ,
                "TANGRAM_BROKER_URL": fleet.url,
                "TANGRAM_NODE": "two",
                "TANGRAM_SANDBOX_DIR": str(second_folder),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: len(client.status()["workers"]) == 2)
        yield client
        second.send_signal(signal.SIGTERM)
        second.wait(30)


def test_every_action_of_a_trajectory_finds_its_workspace(two_nodes: BlockingClient) -> None:
    def action(number: int, text: str) -> Action:
        return Action(
            command=Command(argv=("sh", "-c", f"echo {text} >> log; cat log")),
            trajectory_id=f"t{number}",
            last_of_trajectory=text == "three",
        )

    for text in ("one", "two", "three"):
        handles = two_nodes.submit_many([action(number, text) for number in range(12)])
        results = two_nodes.gather(handles)
        assert {result.outcome for result in results} == {Outcome.SUCCEEDED}
    assert {result.stdout for result in results} == {"one\ntwo\nthree\n"}
    assert {result.node for result in results} == {"one", "two"}
