"""What the embedded Redis needs, and what it says where that is missing."""

from __future__ import annotations

import platform
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tangram_workers.domain.errors import MissingPartError
from tangram_workers.local import redis_server
from tangram_workers.local.redis_server import RedisServer

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_extra_is_named_only_where_it_brings_a_redis_server(
    machine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(redis_server, "find_redis_server", lambda: None)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    [requirement] = map(Requirement, project["optional-dependencies"]["embedded"])
    assert requirement.marker is not None
    brings_one = requirement.marker.evaluate({"platform_machine": machine})
    with pytest.raises(MissingPartError, match="apt-get install redis-server") as caught:
        RedisServer(tmp_path)
    assert ("tangram-workers[embedded]" in str(caught.value)) == brings_one
