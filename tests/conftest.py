"""Fixtures that every test may use: real servers, private folders, no settings from outside."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tangram_workers.local.fleet import Fleet
from tangram_workers.local.redis_server import RedisServer
from tangram_workers.runtime.settings import Settings, load_settings
from tests.support.sandboxes import sandbox_folder
from tests.support.waiting import wait_until

__all__ = ["wait_until"]


@pytest.fixture(scope="session", autouse=True)
def _own_temp_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the fleets of this test process a machine of their own, as far as they can tell.

    Below the system's folder for temporary files lie the ledger of cores and the workspaces that
    all fleets of a user share: those of test processes beside this one, and that user's own.
    """
    tmp_path_factory.getbasetemp()  # pytest's own folder stays where the user looks for it
    with sandbox_folder() as folder, pytest.MonkeyPatch.context() as patch:
        folder.chmod(0o1777)
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TANGRAM_", "FLOWER_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A real redis-server for tests that only need a store."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def settings(redis_server: RedisServer, tmp_path: Path) -> Settings:
    """Settings of a fleet of its own on the shared server."""
    return load_settings(
        broker_url=redis_server.url,
        key_prefix=f"t{uuid.uuid4().hex[:12]}",
        data_dir=tmp_path / "fleet",
        lease_s=1.0,
    )


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A whole running fleet of its own: embedded Redis and one worker, for the module's tests."""
    settings = load_settings(data_dir=tmp_path_factory.mktemp("fleet"), lease_s=1.0)
    with Fleet(settings) as running:
        yield running


@pytest.fixture
def elapsed() -> Callable[[], float]:
    """Seconds since the test began."""
    start = time.monotonic()
    return lambda: time.monotonic() - start
