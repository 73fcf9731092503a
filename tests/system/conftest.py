"""A detached fleet as a person starts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Tangram


@pytest.fixture(scope="module")
def tangram(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tangram]:
    """The command, and a fleet that runs for the module's tests."""
    tangram = Tangram(tmp_path_factory.mktemp("state"))
    assert tangram("up", "--detach").code == 0
    yield tangram
    assert tangram("down").code == 0


@pytest.fixture
def no_fleet(tmp_path: Path) -> Tangram:
    """The command where nothing runs."""
    return Tangram(tmp_path)
