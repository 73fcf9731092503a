"""The transport itself: which channel, which poller."""

from __future__ import annotations

from typing import Any

from tangram_workers.broker.transport import stock
from tangram_workers.broker.transport.channel import Channel, SentinelChannel
from tangram_workers.broker.transport.poller import Poller


class Transport(stock.Transport):  # type: ignore[misc]  # see stock.py
    """Redis with exact scores and leases."""

    Channel = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = Poller()

    @property
    def supports_batch_publish(self) -> bool:
        """True: a batch is one script, so it is published once or not at all."""
        return True


class SentinelTransport(Transport):
    """The same behind Redis Sentinel."""

    Channel = SentinelChannel
    default_port = stock.SentinelTransport.default_port
