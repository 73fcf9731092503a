"""The `tangram` command: one file for each group of commands."""

from __future__ import annotations

from tangram_workers.cli.main import cli, main

__all__ = ["cli", "main"]
