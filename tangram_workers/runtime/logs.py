"""Log lines of services: one line each, to standard error."""

from __future__ import annotations

import logging
import sys

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def set_up_logs(level: int = logging.INFO) -> None:
    """Send log lines of this process to standard error.

    Args:
        level: Lowest level shown; libraries are held to warnings.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tangram_workers").setLevel(level)
