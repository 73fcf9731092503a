"""When a channel is read and when it asks for more."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

from kombu.utils.eventio import READ

from tangram_workers.broker.transport import stock


class Alarm:
    """A descriptor that any thread can make readable, until it is closed."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Between reading the number and writing to it, it must not pass to another file.
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Make it readable."""
        with self._lock:
            if self.fd >= 0:
                os.eventfd_write(self.fd, 1)

    def silence(self) -> None:
        """Make it unreadable."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self.fd >= 0:
                os.eventfd_read(self.fd)

    def close(self) -> None:
        """Give the descriptor back; more than once is fine."""
        with self._lock:
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)


class Poller(stock.MultiChannelPoller):  # type: ignore[misc]  # see stock.py
    """Polls the channels of one connection.

    Unlike the stock one it always reads what a channel was answered: an answer may hold messages,
    and their leases run. It can be woken by an acknowledgement in another thread, since then there
    is room for more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._alarm: Alarm | None = None

    def wake(self) -> None:
        """Look at the channels again, if this is called in another thread than polls them."""
        alarm = self._alarm
        if alarm is not None:
            alarm.ring()

    def get(self, callback: Any, timeout: float | None = None) -> None:
        """Wait for something to read without an event loop; see the stock one."""
        if self._alarm is None:
            self._alarm = Alarm()
            self.poller.register(self._alarm.fd, READ)
        super().get(callback, timeout=timeout)

    def handle_event(self, fileno: int, event: int) -> Any:
        """Read what can be read."""
        if self._alarm is not None and fileno == self._alarm.fd:
            self._alarm.silence()
            return None
        return super().handle_event(fileno, event)

    def on_poll_start(self) -> None:
        """Ask for more where there is room for it."""
        now = time.monotonic()
        for channel in self._channels:
            channel.on_loop_turn(now)
        super().on_poll_start()

    def on_readable(self, fileno: int) -> None:
        """Read one descriptor."""
        channel, kind = self._fd_to_chan.get(fileno, (None, None))
        if kind != "BRPOP":
            super().on_readable(fileno)
        elif channel._in_poll:
            channel.handlers[kind]()
        else:
            # Nothing was asked, so the server has closed it.
            channel.client.connection.disconnect()

    def _update_brpop_polling(self) -> None:
        """Never leave an answer unread."""

    def close(self) -> None:
        """Stop polling."""
        super().close()
        if self._alarm is not None:
            self._alarm.close()
