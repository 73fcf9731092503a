"""The contract of every sandbox driver."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tangram_workers.domain.action import Command
from tangram_workers.runtime.cancel import CancelToken


class Ending(enum.StrEnum):
    """Why a program in a sandbox stopped."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    OOM = "oom"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxRequest:
    """One program to run in a sandbox."""

    command: Command
    #: Key of the lasting workspace that the program starts in; None gives one of its own that
    #: vanishes with the program.
    workspace_key: str | None = None
    #: Core ids that the program may run on; never empty.
    core_ids: tuple[int, ...]
    memory_bytes: int
    disk_bytes: int
    max_processes: int
    timeout_s: float
    #: Bytes kept of each of stdout and stderr.
    output_limit_bytes: int
    #: Variables that tell the program of its grant; the command's own `env` wins over them.
    grant_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxReport:
    """What a program in a sandbox did. Everything it started is gone when this exists."""

    ending: Ending
    #: As a shell reports it: 0..255, or 128 + signal; None if the sandbox killed the program.
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    stdout_truncated: bool
    stderr_truncated: bool
    run_s: float
    cpu_s: float
    #: 0 where the system cannot tell.
    peak_memory_bytes: int


class SandboxDriver(Protocol):
    """Runs programs apart from the machine and from each other. Safe to use from many threads."""

    #: Name that settings use.
    name: str
    #: False if programs can see or harm the machine.
    isolates: bool

    def run(self, request: SandboxRequest, cancel: CancelToken) -> SandboxReport:
        """Run a program to its end and leave nothing of it running.

        Raises:
            SandboxError: If the sandbox itself failed; the program is not to blame.
        """

    def close_workspace(self, key: str) -> None:
        """Remove a lasting workspace; one that does not exist is fine."""

    def sweep(self, *, idle_s: float) -> int:
        """Remove workspaces idle for longer than `idle_s` and what dead workers left behind.

        Returns:
            How many things were removed.
        """
