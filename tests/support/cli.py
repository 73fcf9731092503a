"""The `tangram` command as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Finished:
    """What a command did."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The last line of standard output, read as JSON."""
        return json.loads(self.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Tangram:
    """Runs commands against one data folder."""

    data_dir: Path

    @property
    def environment(self) -> dict[str, str]:
        """What the commands see."""
        return {**os.environ, "TANGRAM_DATA_DIR": str(self.data_dir)}

    def __call__(
        self, *arguments: str, timeout_s: float = 60, env: dict[str, str] | None = None
    ) -> Finished:
        done = subprocess.run(
            command(arguments),
            env={**self.environment, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command line of the installed `tangram`."""
    return [str(Path(sys.executable).with_name("tangram")), *arguments]
