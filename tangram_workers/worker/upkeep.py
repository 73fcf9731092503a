"""What a worker does beside its actions: heartbeat, looking after lost work, tidying its node."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tangram_workers.domain.errors import BrokerUnavailableError
from tangram_workers.sandbox.protocol import SandboxDriver
from tangram_workers.stores.redis.workers import WorkerStore

log = logging.getLogger(__name__)

#: Time between two looks at the node's left-over sandboxes, in seconds.
TIDY_PERIOD_S = 30.0


@dataclass(slots=True)
class Upkeep:
    """One thread in the worker's main process."""

    name: str
    facts: dict[str, Any]
    workers: WorkerStore
    recover: Callable[[], int]
    driver: SandboxDriver
    workspace_ttl_s: float
    period_s: float
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start; the first heartbeat is sent at once."""
        self._thread = threading.Thread(target=self._run, name="tangram-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and sign off."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._tidy()
        try:
            self.workers.leave(self.name)
        except BrokerUnavailableError as error:
            log.debug("not signed off: %s", error)

    def _run(self) -> None:
        tidy_at = time.monotonic()
        while True:
            try:
                self.workers.beat(self.name, self.facts)
                self.recover()
            except BrokerUnavailableError as error:
                log.warning("no upkeep: %s", error)
            except Exception:
                # A thread that ends would make a living worker look dead.
                log.exception("no upkeep this time")
            if time.monotonic() >= tidy_at:
                tidy_at = time.monotonic() + TIDY_PERIOD_S
                self._tidy()
            if self._stop.wait(self.period_s):
                return

    def _tidy(self) -> None:
        try:
            removed = self.driver.sweep(idle_s=self.workspace_ttl_s)
        except OSError as error:
            log.warning("left-over sandboxes not removed: %s", error)
            return
        if removed:
            log.info("removed %d left-over sandboxes", removed)
