"""Messages of one producer that go out together: `Producer.batch()` of kombu."""

from __future__ import annotations

from typing import Any

from tangram_workers.stores.redis.queues import OutgoingMessage


class PublishBatch:
    """Messages that are not sent yet. Of one thread."""

    def __init__(self, channel: Any, max_size: int) -> None:
        #: The producer compares it with its own.
        self.channel = channel
        self._max_size = max_size
        self._messages: list[OutgoingMessage] = []

    def publish(self, message: dict[str, Any], **options: Any) -> Any:
        """Route one prepared message into the batch."""
        return self.channel.basic_publish(message, _publish_batch=self, **options)

    def add(self, message: OutgoingMessage) -> None:
        """Take one routed message; a full batch is sent."""
        self._messages.append(message)
        if len(self._messages) >= self._max_size:
            self.flush()

    def flush(self) -> None:
        """Send all of them in one round trip, all or none."""
        messages, self._messages = self._messages, []
        if messages:
            self.channel.send(messages)

    def discard(self) -> None:
        """Forget what was not sent."""
        self._messages = []

    def close(self) -> None:
        """Forget what was not sent."""
        self.discard()
