"""Loads the Lua scripts beside this file and runs them by digest."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from typing import Any

import redis
from redis.exceptions import NoScriptError

_INCLUDE = re.compile(r"^--include (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One script: its text with shared parts put in, and its SHA-1."""

    name: str
    source: str
    digest: str

    def run(self, client: redis.Redis, keys: list[str], args: list[Any]) -> Any:
        """Run the script, loading it first where the server does not know it (after a restart)."""
        try:
            return client.evalsha(self.digest, len(keys), *keys, *args)
        except NoScriptError:
            client.script_load(self.source)
            return client.evalsha(self.digest, len(keys), *keys, *args)

    def queue(self, pipeline: redis.client.Pipeline, keys: list[str], args: list[Any]) -> None:
        """Add a call to a pipeline. The caller makes sure that the script is loaded."""
        pipeline.evalsha(self.digest, len(keys), *keys, *args)


@functools.cache
def load_script(name: str) -> Script:
    """Return the script in `lua/<name>.lua`, shared parts included."""
    folder = resources.files(__package__) / "lua"

    def include(match: re.Match[str]) -> str:
        return (folder / match[1]).read_text(encoding="utf-8")

    source = _INCLUDE.sub(include, (folder / f"{name}.lua").read_text(encoding="utf-8"))
    digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, source, digest)
