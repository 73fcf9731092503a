"""The state file of an embedded fleet: how commands and clients of one user find it."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from tangram_workers.domain.errors import NoFleetError
from tangram_workers.runtime.processes import is_same_process, start_ticks
from tangram_workers.runtime.settings import Settings

FILE_NAME = "fleet.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetFile:
    """What a running fleet says of itself on disk. Holds the broker's password: mode 0600."""

    pid: int
    #: Start time of that process, so that a reused pid is not mistaken for it.
    start_ticks: int
    broker_url: str
    #: "starting", "ready" or "stopping".
    phase: str

    def write(self, data_dir: Path) -> None:
        """Replace the file in one step."""
        target = data_dir / FILE_NAME
        temporary = data_dir / f".{FILE_NAME}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
        temporary.replace(target)

    @classmethod
    def read(cls, data_dir: Path) -> FleetFile | None:
        """Return the fleet of a data folder if it is alive, else None."""
        try:
            fields = json.loads((data_dir / FILE_NAME).read_text(encoding="utf-8"))
            fleet = cls(**fields)
        except (OSError, ValueError, TypeError):
            return None
        return fleet if is_same_process(fleet.pid, fleet.start_ticks) else None

    @classmethod
    def of_this_process(cls, broker_url: str, phase: str) -> FleetFile:
        """Return the state of a fleet that this process supervises."""
        pid = os.getpid()
        return cls(pid=pid, start_ticks=start_ticks(pid), broker_url=broker_url, phase=phase)


def remove_fleet_file(data_dir: Path) -> None:
    """Remove the state file; a missing one is fine."""
    with contextlib.suppress(FileNotFoundError):
        (data_dir / FILE_NAME).unlink()


def find_broker(settings: Settings) -> str:
    """Return the URL of the fleet's broker: the one named, else the embedded fleet's.

    Raises:
        NoFleetError: If none was named and no embedded fleet is running.
    """
    if settings.broker_url is not None:
        return settings.broker_url
    fleet = FleetFile.read(settings.data_dir)
    if fleet is None:
        raise NoFleetError(
            f"No fleet is running in {settings.data_dir}. Start one with `tangram up`, or name "
            "the Redis of another one in TANGRAM_BROKER_URL."
        )
    return fleet.broker_url
