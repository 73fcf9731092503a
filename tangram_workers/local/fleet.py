"""The supervisor of an embedded fleet: starts Redis and workers, restarts what dies, stops all."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tangram_workers.broker.app import Stores
from tangram_workers.domain.errors import BrokerUnavailableError, TangramError
from tangram_workers.domain.queues import CPU_QUEUE
from tangram_workers.local.redis_server import RedisServer
from tangram_workers.runtime.fleet_file import FleetFile, remove_fleet_file
from tangram_workers.runtime.processes import dying_with_parent
from tangram_workers.runtime.settings import Settings, settings_environment
from tangram_workers.runtime.settings_checks import variable_name

log = logging.getLogger(__name__)

READY_TIMEOUT_S = 60.0
POLL_S = 0.1
FIRST_BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 10.0
#: A worker that lived this long starts over with the first back-off, in seconds.
STEADY_S = 30.0


class FleetStartError(TangramError, RuntimeError):
    """The fleet did not get ready; the message holds the end of the log that tells why."""


class FleetRunningError(TangramError, RuntimeError):
    """Another fleet holds this data folder."""


@dataclass(slots=True)
class _Worker:
    name: str
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    backoff_s: float = FIRST_BACKOFF_S
    restart_at: float = field(default=0.0)


class Fleet:
    """An embedded fleet of this process. Use it as a context manager, or start() and stop()."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data_dir = settings.data_dir
        self._redis: RedisServer | None = None
        self._lock_file: IO[str] | None = None
        self._workers = [_Worker(f"{CPU_QUEUE}@{settings.node}")]
        self._url = settings.broker_url or ""
        self._stopping = threading.Event()
        self._settled = threading.Event()
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """URL of the broker, password included."""
        return self._url

    @property
    def log_dir(self) -> Path:
        """Folder of the logs."""
        return self._data_dir / "logs"

    @property
    def redis_pid(self) -> int | None:
        """Process id of the embedded Redis."""
        return self._redis.pid if self._redis is not None else None

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers' main processes."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    def __enter__(self) -> Self:
        """Start the fleet and wait until it is ready."""
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until the workers are ready.

        Raises:
            FleetRunningError: If another fleet holds the data folder.
            MissingPartError: If there is no redis-server.
            FleetStartError: If something does not get ready.
        """
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.log_dir.mkdir(mode=0o700, exist_ok=True)
        self._lock()
        # One thread starts, watches and stops every process: the kernel ends a child when the
        # thread that started it ends, so that thread must be the last to go.
        self._thread = threading.Thread(target=self._live, name="tangram-fleet", daemon=True)
        self._thread.start()
        try:
            self._settled.wait()
        except BaseException:
            self.stop()
            raise
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Drain the workers, then stop Redis; what still waits is kept on disk."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _live(self) -> None:
        try:
            self._start_all()
            self._settled.set()
            self._watch()
        except BaseException as error:  # noqa: BLE001  # raised by start(), in its caller's thread
            self._failure = error
        finally:
            self._stop_all()
            self._settled.set()

    def _start_all(self) -> None:
        if self._settings.broker_url is None:
            self._redis = RedisServer(self._data_dir)
            self._redis.start()
            self._url = self._redis.url
        FleetFile.of_this_process(self._url, "starting").write(self._data_dir)
        for worker in self._workers:
            self._launch(worker)
        self._wait_until_ready()
        FleetFile.of_this_process(self._url, "ready").write(self._data_dir)

    def _stop_all(self) -> None:
        FleetFile.of_this_process(self._url, "stopping").write(self._data_dir)
        self._stop_workers()
        if self._redis is not None:
            self._redis.stop()
        remove_fleet_file(self._data_dir)
        if self._lock_file is not None:
            self._lock_file.close()

    def _lock(self) -> None:
        lock_file = (self._data_dir / "fleet.lock").open("w")
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock_file.close()
            raise FleetRunningError(
                f"A fleet is already running in {self._data_dir}. Stop it with `tangram down`, or "
                f"give this one another folder in {variable_name('data_dir')}."
            ) from None
        self._lock_file = lock_file

    def _launch(self, worker: _Worker) -> None:
        environment = {
            **os.environ,
            **settings_environment(self._settings),
            variable_name("broker_url"): self._url,
        }
        with (self.log_dir / "worker.log").open("ab") as output:
            worker.process = subprocess.Popen(
                dying_with_parent(
                    [sys.executable, "-m", "tangram_workers.cli", "worker", "--name", worker.name]
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        worker.started_at = time.monotonic()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        stores = Stores(self._settings, self._url)
        try:
            while True:
                for worker in self._workers:
                    if worker.process is None or worker.process.poll() is not None:
                        raise FleetStartError(
                            f"Worker {worker.name} ended while it started: {self._worker_log()}"
                        )
                pids = {facts["pid"] for facts in stores.workers.read().values()}
                if pids >= set(self.worker_pids):
                    return
                if self._stopping.is_set():
                    raise FleetStartError("The fleet was stopped while it started.")
                if time.monotonic() > deadline:
                    raise FleetStartError(
                        f"The workers were not ready after {READY_TIMEOUT_S:g} s: "
                        f"{self._worker_log()}"
                    )
                time.sleep(0.02)
        finally:
            stores.actions.close()

    def _watch(self) -> None:
        while not self._stopping.wait(POLL_S):
            if self._redis is not None and not self._redis.is_running:
                log.warning("the embedded Redis ended; starting it again")
                try:
                    self._redis.start()
                except BrokerUnavailableError:
                    log.exception("the embedded Redis does not start")
                    self._stopping.wait(1.0)
                    continue
            for worker in self._workers:
                self._revive(worker)

    def _revive(self, worker: _Worker) -> None:
        now = time.monotonic()
        if worker.process is not None:
            code = worker.process.poll()
            if code is None:
                return
            lived_s = now - worker.started_at
            worker.process = None
            worker.backoff_s = (
                FIRST_BACKOFF_S
                if lived_s > STEADY_S
                else min(LONGEST_BACKOFF_S, worker.backoff_s * 2)
            )
            worker.restart_at = now + worker.backoff_s
            log.warning("worker %s ended with %s; it starts again", worker.name, code)
        if now >= worker.restart_at:
            self._launch(worker)

    def _stop_workers(self) -> None:
        running = [w.process for w in self._workers if w.process is not None]
        for process in running:
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + self._settings.drain_timeout_s
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            if process.poll() is None:
                log.warning("worker %d did not drain in time; it is killed", process.pid)
                # Its own session, so the group is the worker and its pool, nothing else.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _worker_log(self) -> str:
        path = self.log_dir / "worker.log"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{' / '.join(line.strip() for line in lines[-3:])} Its log is {path}."


@contextlib.contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT or SIGTERM sets, for a foreground fleet."""
    event = threading.Event()
    previous = {
        number: signal.signal(number, lambda *_: event.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield event
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
