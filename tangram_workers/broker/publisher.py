"""Submits actions: record in the store first, then a message that points to it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery.result import AsyncResult
from kombu.exceptions import OperationalError as KombuOperationalError

from tangram_workers.broker.calls import action_from_call, message_kwargs, refuse_options, task_name
from tangram_workers.broker.routing import OFFSET_OPTION
from tangram_workers.domain.action import Action, ActionKind
from tangram_workers.domain.errors import BrokerUnavailableError
from tangram_workers.domain.queues import API_PREFIX, CPU_QUEUE
from tangram_workers.stores.redis.actions import ActionStore
from tangram_workers.stores.redis.connection import broker_errors, mask_url
from tangram_workers.stores.types import Republish, Submission, SubmitReply
from tangram_workers.wire.codec import encode_action

if TYPE_CHECKING:
    from tangram_workers.broker.app import TangramCelery

log = logging.getLogger(__name__)

#: Name space of action ids that are made from idempotency keys.
_KEY_SPACE = uuid.UUID("5c1f6fb5-2a3b-4f0e-9d5f-0c2a7f6b7e11")

#: A waiting action whose queue holds no message at all is published again, at most this many in
#: one look: its message was lost with a worker or with a client between record and publish.
RECOVER_LIMIT = 500


def action_id_for(action: Action) -> str:
    """Return the id of a submit: the same for the same idempotency key, else a new one."""
    if action.idempotency_key is not None:
        return str(uuid.uuid5(_KEY_SPACE, action.idempotency_key))
    return str(uuid.uuid4())


class Publisher:
    """Puts actions into the fleet. Safe to use from many threads; make a new one after a fork."""

    def __init__(self, app: TangramCelery, store: ActionStore, url: str) -> None:
        self._app = app
        self._store = store
        self._url = url

    def prepare(
        self, action: Action, client_id: str | None, action_id: str | None = None
    ) -> tuple[Submission, dict[str, Any]]:
        """Route and encode an action; nothing is sent.

        Args:
            action: What to do.
            client_id: Whose inbox gets the result; None if a plain Celery caller waits for it.
            action_id: Its id, where the caller chose one.

        Raises:
            InputError: If the action cannot work; it names the field and the mend.
        """
        route: Mapping[str, Any] = self._app.amqp.router.route(
            {}, task_name(action.kind), (), {"action": action}
        )
        action_id = action_id or action_id_for(action)
        submission = Submission(
            action_id=action_id,
            body=encode_action(action),
            queue=route["queue"].name,
            offset_s=route[OFFSET_OPTION],
            queue_timeout_s=action.queue_timeout_s,
            trajectory_id=action.trajectory_id,
            client_id=client_id,
        )
        message = {
            "name": task_name(action.kind),
            "kwargs": message_kwargs(action_id, action),
            "task_id": action_id,
            "queue": submission.queue,
            "ignore_result": client_id is not None,
        }
        return submission, message

    def submit(self, prepared: Sequence[tuple[Submission, dict[str, Any]]]) -> list[SubmitReply]:
        """Record and publish prepared actions: one round trip to the store, one batch of messages.

        Raises:
            BrokerUnavailableError: If the broker does not answer in time. Actions that were
                recorded by then are still run; submitting again with the same idempotency key
                joins them.
        """
        replies = self._store.submit([submission for submission, _ in prepared])
        self._publish(
            {**message, "priority": reply.score}
            for (_, message), reply in zip(prepared, replies, strict=True)
            if reply.needs_message
        )
        return replies

    def submit_call(
        self,
        kind: ActionKind,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> AsyncResult[Any]:
        """Submit what a plain Celery call asks for; the task's result is the action's result.

        Raises:
            InputError: If the call cannot work.
            BrokerUnavailableError: If the broker does not answer in time.
        """
        refuse_options(options)
        action = action_from_call(kind, args, kwargs)
        submission, message = self.prepare(action, None, options.get("task_id"))
        self.submit([(submission, message)])
        return self._app.AsyncResult(submission.action_id)

    def republish(self, actions: Iterable[Republish]) -> None:
        """Publish messages of recorded actions once more; duplicates do no harm."""
        self._publish(
            {
                "name": task_name(_kind_of_queue(action.queue)),
                "kwargs": {"action_id": action.action_id, "again": True},
                "task_id": action.action_id,
                "queue": action.queue,
                "priority": action.score,
                "node": action.node,
                # The worker finds out from the record whether anybody waits for a task result.
                "ignore_result": False,
            }
            for action in actions
        )

    def recover(self) -> int:
        """Look after actions that no message or worker stands for any more.

        Returns:
            How many messages were published again.
        """
        lost = self._store.sweep()
        queues = self._store.queues()
        for queue, count in zip(queues, self._store.waiting_counts(queues), strict=True):
            if count and self.message_count(queue) == 0:
                lost += self._store.waiting(queue, limit=RECOVER_LIMIT, older_than_s=3.0)
        if lost:
            log.info("publishing %d messages again", len(lost))
            self.republish(lost)
        return len(lost)

    def message_count(self, queue: str) -> int:
        """Return how many messages the transport holds for a queue."""
        with self._transport_errors(), self._app.connection_or_acquire() as connection:
            # kombu has no public call for it; declaring the queue would count it too, and make it.
            channel: Any = connection.default_channel
            return int(channel._size(queue))

    def _publish(self, messages: Iterable[dict[str, Any]]) -> None:
        with (
            self._transport_errors(),
            self._app.producer_or_acquire() as producer,
            producer.batch(),
        ):
            for message in messages:
                self._app.send_message(producer=producer, retry=False, **message)

    @contextmanager
    def _transport_errors(self) -> Iterator[None]:
        try:
            # kombu lets some errors of the Redis client through as they are.
            with broker_errors(self._url):
                yield
        except KombuOperationalError as error:
            raise BrokerUnavailableError(
                f"The broker at {mask_url(self._url)} does not answer: {error}. "
                "Start it, or correct TANGRAM_BROKER_URL."
            ) from error


def _kind_of_queue(queue: str) -> ActionKind:
    if queue == CPU_QUEUE:
        return ActionKind.COMMAND
    return ActionKind.API_CALL if queue.startswith(API_PREFIX) else ActionKind.SCORE
