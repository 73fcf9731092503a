"""What makes a Celery app use this transport for the Redis URLs that it has anyway."""

from __future__ import annotations

from typing import Any

from celery.app.amqp import AMQP

from tangram_workers.broker.transport import stock
from tangram_workers.broker.transport.transport import SentinelTransport, Transport

#: What `rediss://` asks for where the app does not say more in `broker_use_ssl`.
_VERIFY = {"ssl_cert_reqs": "required"}


class TangramConnection(stock.Connection):  # type: ignore[misc]  # see stock.py
    """A connection whose Redis transports are this package's.

    Its URL stays a Redis URL, so that whoever reads it (Flower, a log) finds what is there.
    """

    transport_cls: Any
    ssl: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        is_tls = self.transport_cls == "rediss"
        chosen = self.get_transport_cls()
        if chosen is stock.Transport:
            # As a class, since pools build their own connections from what this one is made of.
            self.transport_cls = Transport
            if is_tls and not self.ssl:
                # The stock transport would speak plain text where the URL says TLS.
                self.ssl = _VERIFY
        elif chosen is stock.SentinelTransport:
            self.transport_cls = SentinelTransport

    def as_uri(self, *args: Any, **kwargs: Any) -> str:
        """Return the URL, as the stock transport would give it."""
        uri: str = super().as_uri(*args, **kwargs)
        if self.uri_prefix or isinstance(self.transport_cls, str):
            return uri
        return f"{self._scheme()}://{uri.partition('://')[2]}"

    def _scheme(self) -> str:
        if self.transport_cls is SentinelTransport:
            return "sentinel"
        return "rediss" if self.ssl else "redis"


class TangramAMQP(AMQP):
    """Queues and producers of an app on this transport: give it to Celery as `amqp=`."""

    Connection = TangramConnection
    BrokerConnection = TangramConnection
