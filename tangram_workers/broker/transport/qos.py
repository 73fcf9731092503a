"""Which messages a channel has delivered and not yet heard of again."""

from __future__ import annotations

from typing import Any

from tangram_workers.broker.transport import stock


class QoS(stock.QoS):  # type: ignore[misc]  # see stock.py
    """Prefetch bounds of a channel. Leases are the keeper's: the claim itself has written them."""

    def ack(self, delivery_tag: str) -> None:
        """Be done with a message."""
        super().ack(delivery_tag)
        self.channel.settle(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Be done with a message, or put it back with its old score."""
        super().ack(delivery_tag)
        if requeue:
            self.channel.put_back(delivery_tag)
        else:
            self.channel.settle(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Forget what was delivered: the keeper knows what of it still runs."""
        self._flush()
        self._delivered.clear()
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Forget what was delivered, at the end of the channel."""
        self._on_collect.cancel()
        self.restore_unacked()

    def restore_visible(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing: leases are looked after by the keeper's own thread."""
