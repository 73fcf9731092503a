"""Picks the sandbox driver that the settings ask for."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from tangram_workers.runtime.settings import Settings
from tangram_workers.sandbox.bubblewrap import BubblewrapDriver, find_bwrap
from tangram_workers.sandbox.process import ProcessDriver
from tangram_workers.sandbox.protocol import SandboxDriver

_LOG = logging.getLogger(__name__)


def make_driver(settings: Settings) -> SandboxDriver:
    """Return the driver that `settings.sandbox_driver` names, tried and ready.

    Raises:
        MissingPartError: If a program that it needs is not installed.
        SandboxError: If this system refuses sandboxes.
        SettingsError: If the sandbox folder cannot be used.
    """
    base_dir = sandbox_folder(settings)
    if settings.sandbox_driver == "process":
        _LOG.warning(
            "TANGRAM_SANDBOX_DRIVER=process DOES NOT ISOLATE: commands can read, change and kill "
            "all that user %d can on this node. Use it for trusted code only; for anything else "
            "use `bubblewrap`.",
            os.geteuid(),
        )
        return ProcessDriver(base_dir=base_dir / "process")
    return BubblewrapDriver(
        bwrap_path=find_bwrap(),
        base_dir=base_dir / "bubblewrap",
        sandbox_uid=settings.sandbox_uid,
        workspaces_bytes=settings.sandbox_workspaces_bytes,
    )


def sandbox_folder(settings: Settings) -> Path:
    """Return the folder below which this node's workspaces lie."""
    if settings.sandbox_dir is not None:
        return settings.sandbox_dir.absolute()
    return Path(tempfile.gettempdir(), f"tangram-{os.geteuid()}").absolute()
