"""What one worker process has: executor and keeper in pool children, upkeep in the main one."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tangram_workers.broker.app import HEARTBEAT_S, TangramCelery
from tangram_workers.resources.cores import CoreLedger, usable_cores
from tangram_workers.runtime.settings import Settings
from tangram_workers.sandbox.factory import make_driver, sandbox_folder
from tangram_workers.worker.executor import Executor
from tangram_workers.worker.keeper import Keeper
from tangram_workers.worker.upkeep import Upkeep

if TYPE_CHECKING:
    from tangram_workers.sandbox.protocol import SandboxDriver


class WorkerProcess:
    """Made at import in the main process; each pool child builds its own parts on first use."""

    def __init__(self, app: TangramCelery, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        #: Set once this worker is told to stop, by a signal or from Flower.
        self.is_asked_to_stop = False
        self._lock = threading.Lock()
        self._pid = 0
        self._keeper: Keeper | None = None
        self._executor: Executor | None = None
        self._upkeep: Upkeep | None = None

    def executor(self, hostname: str) -> Executor:
        """Return this process's executor; a child of a fork never uses its parent's."""
        with self._lock:
            if self._executor is None or self._pid != os.getpid():
                self._pid = os.getpid()
                stores = self._app.stores
                self._keeper = Keeper(stores.actions, stores.estimates, self._settings.lease_s)
                self._keeper.start()
                self._executor = Executor(
                    self._settings,
                    stores.actions,
                    self._driver(),
                    self._ledger(),
                    self._keeper,
                    worker=f"{hostname}/{os.getpid()}",
                    fleet_id=stores.workers.fleet_id(),
                )
            return self._executor

    def start_upkeep(self, hostname: str, queues: list[str]) -> None:
        """Start heartbeat and upkeep in the worker's main process."""
        self._upkeep = Upkeep(
            name=hostname,
            facts={
                "node": self._settings.node,
                "pid": os.getpid(),
                "queues": queues,
                "cores": len(self._ledger().core_ids),
                "sandbox": self._settings.sandbox_driver,
            },
            workers=self._app.stores.workers,
            recover=self._app.publisher.recover,
            driver=self._driver(),
            workspace_ttl_s=self._settings.workspace_ttl_s,
            period_s=HEARTBEAT_S,
        )
        self._upkeep.start()

    def stop_upkeep(self) -> None:
        """Stop upkeep, if this process does any."""
        if self._upkeep is not None:
            self._upkeep.stop()

    def stop_child(self) -> None:
        """Stop the keeper of a pool child, so that its last observations are written."""
        if self._keeper is not None and self._pid == os.getpid():
            self._keeper.stop()

    def _driver(self) -> SandboxDriver:
        return make_driver(self._settings)

    def _ledger(self) -> CoreLedger:
        directory: Path = sandbox_folder(self._settings) / "cores"
        return CoreLedger(directory, usable_cores(self._settings.cores))
