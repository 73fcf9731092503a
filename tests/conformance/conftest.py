from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangram_workers.sandbox.protocol import SandboxDriver
from tests.support.processes import find_processes, make_marker, open_descriptors
from tests.support.sandboxes import (
    DRIVERS,
    Sandboxes,
    cgroups_of,
    make_driver_of_kind,
    sandbox_folder,
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with sandbox_folder() as path:
        yield path


@pytest.fixture(scope="module", params=DRIVERS)
def any_driver(request: pytest.FixtureRequest, folder: Path) -> tuple[SandboxDriver, bool]:
    """Every driver, and whether it uses cgroups."""
    return make_driver_of_kind(request.param, folder)


@pytest.fixture
def sandboxes(any_driver: tuple[SandboxDriver, bool], marker: str) -> Iterator[Sandboxes]:
    """A driver; whatever the test does, it must leave nothing open and nothing running."""
    driver, has_cgroups = any_driver
    before, cores = open_descriptors(), os.sched_getaffinity(0)
    made = Sandboxes(driver, has_cgroups)
    yield made
    made.close()
    assert find_processes(marker) == []
    assert cgroups_of(os.getpid()) == []
    # What other tests opened may close meanwhile; nothing may have been added.
    assert open_descriptors() <= before
    assert os.sched_getaffinity(0) == cores


@pytest.fixture
def marker() -> str:
    return make_marker()
