"""Programs that Python packages ship."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def find_program_in(module: str, *path: str) -> str | None:
    """Return a program that a top-level module ships, without importing the module."""
    spec = importlib.util.find_spec(module)
    for folder in (spec and spec.submodule_search_locations) or ():
        program = Path(folder, *path)
        if os.access(program, os.X_OK):
            return str(program)
    return None
