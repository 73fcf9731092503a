"""What the Celery worker of this process runs, if it is one."""

from __future__ import annotations

import os
import sys
from typing import Any


def running_task_ids() -> set[str]:
    """Return the ids of tasks that this worker runs; empty where it is none."""
    return {request.id for request in _requests("active_requests")}


def accepted_task_ids() -> set[str]:
    """Return the ids of tasks that this worker has taken and not ended; empty where it is none."""
    return {request.id for request in _requests("reserved_requests")} | running_task_ids()


def runs_in_this_process() -> bool:
    """Tell whether a task runs in this very process, and so may keep its event loop."""
    pid = os.getpid()
    return any(
        getattr(request, "worker_pid", None) == pid for request in _requests("active_requests")
    )


def _requests(name: str) -> list[Any]:
    # Not imported here: a client must not load a worker.
    state = sys.modules.get("celery.worker.state")
    return [] if state is None else list(getattr(state, name))
