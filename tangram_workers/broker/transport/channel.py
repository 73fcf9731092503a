"""Channels: publish through one script, take through another, hold what was taken under leases.

The connection that takes messages goes back and forth between two commands. A claim asks for as
many messages as there is room for; if it is given fewer, the same script has parked the channel's
holder, and the connection then waits for the holder's bell. No message can come in between unheard.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections.abc import Sequence
from queue import Empty
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from tangram_workers.broker.transport import stock
from tangram_workers.broker.transport.batch import PublishBatch
from tangram_workers.broker.transport.holdings import UNCOUNTED, Holder, Lease
from tangram_workers.broker.transport.keeper import LeaseKeeper, keeper_for
from tangram_workers.broker.transport.payloads import (
    decode_message,
    mark_delivered,
    outgoing_message,
)
from tangram_workers.broker.transport.qos import QoS
from tangram_workers.stores.redis.queues import (
    ClaimRequest,
    HeldMessage,
    MessageQueues,
    MessageRef,
    OutgoingMessage,
    QueueOptions,
    parse_claim,
)
from tangram_workers.stores.redis.server import require_supported_server

log = logging.getLogger(__name__)

#: Most messages that one claim takes.
CLAIM_LIMIT = 64
#: Bound on each answer of the server where the app sets none, in seconds.
TIMEOUT_S = 5.0
#: How long a closing channel waits for the answer to a claim, in seconds.
CLOSE_WAIT_S = 1.0
#: Life time of the reply queue of a remote control command whose asker is gone, in milliseconds.
REPLY_LIFE_TIME_MS = 60_000
_REPLY_SUFFIX = ".pidbox"
_REPLY_PART = ".reply."

_CLAIM, _BELL = "claim", "bell"


class Channel(stock.Channel):  # type: ignore[misc]  # see stock.py
    """A channel whose messages have exact scores and leases."""

    QoS = QoS
    body_encoding = "utf-8"
    socket_timeout = TIMEOUT_S
    socket_connect_timeout = TIMEOUT_S
    #: All threads of a process share the keeper's connections.
    max_connections = None

    # --- transport options, beside those of the stock transport
    #: See QueueOptions.
    lease_s = QueueOptions().lease_s
    max_losses = QueueOptions().max_losses
    max_deliveries = QueueOptions().max_deliveries
    reserve_after_s = QueueOptions().reserve_after_s
    #: Units that what this process runs at once may take; None counts none.
    capacity_units: int | None = None
    #: Name of this machine, for messages that are bound to one.
    node: str = os.uname().nodename

    from_transport_options = (
        *stock.Channel.from_transport_options,
        "lease_s",
        "max_losses",
        "max_deliveries",
        "reserve_after_s",
        "capacity_units",
        "node",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sentinel_manager: Any = None
        self._keeper: LeaseKeeper | None = None
        self._holder: Holder | None = None
        self._leases: dict[str, Lease] = {}
        self._no_ack_queues: set[str] = set()
        self._asked: str | None = None
        self._asked_settled: list[MessageRef] = []
        self._is_parked = False
        self._wait_s: float | None = None
        super().__init__(*args, **kwargs)
        self.handlers["BRPOP"] = self._brpop_read

    # --- keeper and holder -------------------------------------------------------------------

    @property
    def keeper(self) -> LeaseKeeper:
        """This process's keeper; another one after a fork."""
        if self._keeper is None or not self._keeper.is_usable:
            self._keeper = keeper_for(self._place(), self._make_keeper)
            # Also of a channel that takes nothing: the keeper stays as long as anybody needs it.
            self._holder = self._keeper.open_holder()
        return self._keeper

    @property
    def holder(self) -> Holder:
        """Who holds what this channel takes."""
        keeper = self.keeper
        if self._holder is None:
            self._holder = keeper.open_holder()
        return self._holder

    def _place(self) -> tuple[str, ...]:
        at = self.connection.client
        facts = (at.hostname, at.port, at.virtual_host, at.userid, at.password, at.alt, at.ssl)
        return (repr(facts), repr(sorted(at.transport_options.items(), key=str)))

    def _make_keeper(self) -> LeaseKeeper:
        # The pool outlives this channel; so a Sentinel that belongs to it must not end with it.
        manager, self._sentinel_manager = self._sentinel_manager, None
        pool = self._get_pool()
        own_manager, self._sentinel_manager = self._sentinel_manager, manager
        retry = Retry(ExponentialBackoff(cap=0.1, base=0.01), 1, (RedisConnectionError,))
        client = redis.Redis(connection_pool=pool)
        client.set_retry(retry)

        def close() -> None:
            pool.disconnect()
            if own_manager is not None and hasattr(own_manager, "close"):
                own_manager.close()

        try:
            require_supported_server(client)
        except BaseException:
            close()
            raise
        options = QueueOptions(
            lease_s=self.lease_s,
            max_losses=self.max_losses,
            max_deliveries=self.max_deliveries,
            reserve_after_s=self.reserve_after_s,
        )
        return LeaseKeeper(
            MessageQueues(self.global_keyprefix, options),
            client,
            close,
            node=self.node,
            capacity_units=self.capacity_units or UNCOUNTED,
        )

    # --- publishing --------------------------------------------------------------------------

    @property
    def supports_batch_publish(self) -> bool:
        """True: a batch is one script."""
        return True

    def create_publish_batch(self, max_size: int) -> PublishBatch:
        """Return a batch for one producer."""
        return PublishBatch(self, max_size)

    def _put(
        self,
        queue: str,
        message: dict[str, Any],
        _publish_batch: PublishBatch | None = None,
        **_kwargs: Any,
    ) -> None:
        outgoing = outgoing_message(queue, message)
        if _publish_batch is not None:
            _publish_batch.add(outgoing)
        else:
            self.send([outgoing])

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any
    ) -> None:
        # PUBLISH leaves nothing behind, so a batch need not wait with it.
        kwargs.pop("_publish_batch", None)
        super()._put_fanout(exchange, message, routing_key, **kwargs)

    def send(self, messages: Sequence[OutgoingMessage]) -> None:
        """Publish routed messages in one round trip for each queue with a life time."""
        keeper = self.keeper
        lasting = [message for message in messages if self._life_time(message.queue) is None]
        if lasting:
            keeper.queues.put(keeper.client, lasting)
        for message in messages:
            life_time_ms = self._life_time(message.queue)
            if life_time_ms is not None:
                life_time = (message.queue, life_time_ms)
                keeper.queues.put(keeper.client, [message], life_time=life_time)

    def _life_time(self, queue: str) -> int | None:
        if queue in self._expires:
            return int(self._expires[queue])
        if queue.endswith(_REPLY_SUFFIX) and _REPLY_PART in queue:
            # Whoever replies has not declared it, and whoever declared it may be gone.
            return REPLY_LIFE_TIME_MS
        return None

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Leave text as it is; only bytes need an encoding to go into JSON."""
        if isinstance(body, bytes) and encoding == "utf-8":
            encoding = "base64"
        encoded: tuple[Any, str | None] = super().encode_body(body, encoding)
        return encoded

    # --- taking ------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """Take messages from a queue from now on."""
        if no_ack:
            self._no_ack_queues.add(queue)
        else:
            self._no_ack_queues.discard(queue)
        consumed = super().basic_consume(queue, no_ack, *args, **kwargs)
        self._consumers_changed()
        return consumed

    def _basic_cancel(self, consumer_tag: str) -> Any:
        cancelled = super()._basic_cancel(consumer_tag)
        self._consumers_changed()
        return cancelled

    def _consumers_changed(self) -> None:
        self._is_parked = False  # it may be parked at other queues than it is to be
        queues = self.active_queues
        if queues:
            self.keeper.consume(self.holder, queues)
        elif self._holder is not None and self._keeper is not None:
            with contextlib.suppress(RedisError, OSError):
                self._keeper.retire(self._holder)

    def on_loop_turn(self, now: float) -> None:
        """Tell the keeper that the loop turns, and the server what was acknowledged.

        Acknowledgements ride on the next claim where one is about to be sent or on its way.
        """
        keeper, holder = self._keeper, self._holder
        if keeper is None or holder is None:
            return
        keeper.progress_at = now
        if not holder.settled or (self._in_poll and self._asked == _CLAIM):
            return
        waits_for_bell = bool(self._in_poll) and self._asked == _BELL
        will_claim = not self._in_poll and self.active_queues and self.qos.can_consume()
        if keeper.is_away:
            return  # its thread tries again
        if waits_for_bell or not will_claim or self._is_parked:
            with contextlib.suppress(RedisError, OSError):
                keeper.flush(holder, parked_queues=self.active_queues if self._is_parked else ())

    def _credit(self) -> int:
        estimate = self.qos.can_consume_max_estimate()
        # Without a prefetch limit one at a time, so that nobody hoards what others could take.
        return 1 if estimate is None else min(CLAIM_LIMIT, estimate)

    def _brpop_start(self, timeout: float | None = None) -> None:
        queues = self.active_queues
        if not queues:
            return
        connection = self.client.connection
        if self._is_parked:
            self._asked = _BELL
            command = ["BLPOP", self.keeper.queues.keys.bell(self.holder.name), self._bell_wait_s()]
        else:
            self._asked = _CLAIM
            command = self._claim_command(queues)
        self._in_poll = connection
        self._brpop_sent_at = time.monotonic()
        try:
            connection.send_command(*command)
        except BaseException:
            self._in_poll = None
            self._forget_question()
            raise

    def _bell_wait_s(self) -> float:
        longest_s = self.brpop_timeout or 1
        if self._wait_s is None:
            return float(longest_s)
        return max(0.001, min(longest_s, self._wait_s))

    def _claim_command(self, queues: list[str]) -> list[Any]:
        keeper, holder = self.keeper, self.holder
        self._asked_settled = keeper.holdings.take_settled(holder)
        return keeper.queues.claim_command(
            ClaimRequest(
                holder=holder.name,
                queues=queues,
                limit=self._credit(),
                free_units=keeper.holdings.free_units,
                capacity_units=keeper.holdings.capacity_units,
                parks=True,
                settled=self._asked_settled,
            )
        )

    def _forget_question(self) -> None:
        """After a failure: what was to be acknowledged with the question still is."""
        settled, self._asked_settled = self._asked_settled, []
        if self._keeper is not None and self._holder is not None:
            self._keeper.holdings.return_settled(self._holder, settled)
        self._asked, self._is_parked = None, False

    def _brpop_read(self, **_options: Any) -> bool:
        asked, connection = self._asked, self.client.connection
        try:
            reply = self.client.parse_response(connection, "")
        except NoScriptError:
            self._forget_question()
            self.keeper.queues.load(self.keeper.client)
            raise Empty from None
        except self.connection_errors:
            self._forget_question()
            # The next round connects anew.
            connection.disconnect()
            raise
        except BaseException:
            self._forget_question()
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        self._asked, self._asked_settled = None, []
        if asked == _BELL:
            self._is_parked = False
            if reply is None or not self.qos.can_consume():
                raise Empty
            # There is work: its claim is answered sooner than another turn of the loop would come.
            self._brpop_start()
            return self._brpop_read()
        claimed = parse_claim(reply)
        self._is_parked, self._wait_s = claimed.is_parked, claimed.next_due_s
        if not claimed.messages:
            raise Empty
        self._deliver_all(self._hold(claimed.messages))
        return True

    def _poll_error(self, type: str, **options: Any) -> None:  # noqa: A002 - the stock name
        if type == "BRPOP":
            with contextlib.suppress(Empty):
                self._brpop_read()
        else:
            super()._poll_error(type, **options)

    def _hold(self, messages: Sequence[HeldMessage]) -> list[tuple[Lease, dict[str, Any] | None]]:
        """Hold what was claimed, all of it before anything is done with any."""
        held: list[tuple[Lease, dict[str, Any] | None]] = []
        for message in messages:
            decoded: dict[str, Any] | None = None
            task_id = None
            try:
                decoded = decode_message(message.payload)
                mark_delivered(decoded, _tag(message.ref), message.deliveries)
                task_id = (decoded.get("headers") or {}).get("id")
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                # Its traceback says nothing more, and the story of its dead letter will be told.
                log.error("queue %s: unreadable message: %s", message.ref.queue, error)  # noqa: TRY400
            held.append((Lease(message.ref, message.units, task_id), decoded))
        self.keeper.holdings.add(self.holder, [lease for lease, _ in held])
        return held

    def _deliver_all(self, held: list[tuple[Lease, dict[str, Any] | None]]) -> None:
        for at, (lease, message) in enumerate(held):
            queue = lease.ref.queue
            try:
                if message is None:
                    self.keeper.give_back(self.holder, [lease], counts=True)
                elif self.connection is None or queue not in self.connection._callbacks:
                    # Its consumer was cancelled while the claim was on its way.
                    self.keeper.give_back(self.holder, [lease])
                else:
                    tag = _tag(lease.ref)
                    self._leases[tag] = lease
                    self.connection._deliver(message, queue)
                    if queue in self._no_ack_queues:
                        self.settle(tag)
            except BaseException:
                with contextlib.suppress(RedisError, OSError):
                    self.keeper.give_back(self.holder, [rest for rest, _ in held[at + 1 :]])
                raise

    def _get(self, queue: str) -> dict[str, Any]:
        keeper, holder = self.keeper, self.holder
        request = ClaimRequest(
            holder=holder.name,
            queues=[queue],
            limit=1,
            free_units=UNCOUNTED,
            capacity_units=UNCOUNTED,
        )
        claimed = keeper.queues.claim(keeper.client, request)
        if not claimed.messages:
            raise Empty
        keeper.consume(holder, self.active_queues)  # so that the lease is renewed
        [(lease, message)] = self._hold(claimed.messages)
        if message is None:
            keeper.give_back(holder, [lease], counts=True)
            raise Empty
        self._leases[_tag(lease.ref)] = lease
        return message

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """Take one message, if there is one."""
        message = super().basic_get(queue, no_ack=no_ack, **kwargs)
        if message is not None and no_ack:
            self.settle(message.delivery_tag)
        return message

    # --- being done --------------------------------------------------------------------------

    def settle(self, delivery_tag: str) -> None:
        """Be done with a message; the server hears of it with what is asked of it next."""
        lease = self._leases.pop(delivery_tag, None)
        keeper, holder = self._keeper, self._holder
        if lease is None or keeper is None or holder is None:
            return
        keeper.holdings.settle(holder, lease)
        connection = self.connection
        if connection is not None:
            connection.cycle.wake()

    def put_back(self, delivery_tag: str) -> None:
        """Put a message back into its queue with its old score."""
        lease = self._leases.pop(delivery_tag, None)
        if lease is not None and self._keeper is not None and self._holder is not None:
            self._keeper.give_back(self._holder, [lease], counts=True)

    def _restore(self, message: Any, leftmost: bool = False) -> None:
        self.put_back(message.delivery_tag)

    # --- queues ------------------------------------------------------------------------------

    def _new_queue(self, queue: str, auto_delete: bool = False, **kwargs: Any) -> None:
        super()._new_queue(queue, auto_delete=auto_delete, **kwargs)
        self._remember_life_times([queue])

    def _refresh_bindings(self, queues: Sequence[str]) -> None:
        super()._refresh_bindings(queues)
        self._remember_life_times(queues)

    def _remember_life_times(self, queues: Sequence[str]) -> None:
        for queue in queues:
            if queue in self._expires:
                life_time_ms = int(self._expires[queue])
                keeper = self.keeper
                keeper.client.set(
                    keeper.queues.keys.life_time(queue), life_time_ms, px=life_time_ms
                )

    def _size(self, queue: str) -> int:
        return self.keeper.queues.size(self.keeper.client, queue)

    def _purge(self, queue: str) -> int:
        return self.keeper.queues.purge(self.keeper.client, queue)

    def _has_queue(self, queue: str, **_kwargs: Any) -> bool:
        return self._size(queue) > 0

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        if queue not in self._fanout_queues:
            self.keeper.queues.delete(self.keeper.client, queue)
        super()._delete(queue, *args, **kwargs)

    # --- the end -----------------------------------------------------------------------------

    def _on_connection_disconnect(self, connection: Any) -> None:
        if self._in_poll is connection:
            self._forget_question()
        super()._on_connection_disconnect(connection)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._keeper, self._holder, self._leases = None, None, {}
        self._asked, self._asked_settled, self._is_parked = None, [], False

    def close(self) -> None:
        """Close; what was claimed and not delivered goes back, what runs goes on being held."""
        if not self.closed and self._keeper is not None and self._keeper.is_usable:
            self._closing = True
            with contextlib.suppress(*self.connection_errors, RedisError):
                self._finish_poll()
            self._in_poll = None
            if self._holder is not None:
                self._keeper.close_holder(self._holder)
        super().close()

    def _finish_poll(self) -> None:
        """Give back what an unanswered claim may bring."""
        connection = self._in_poll
        if not connection or self._asked != _CLAIM or connection._sock is None:
            return
        poller = select.poll()
        poller.register(connection._sock, select.POLLIN)
        if not poller.poll(CLOSE_WAIT_S * 1000):
            return  # no answer: the lease of what it may hold runs out
        try:
            reply = self.client.parse_response(connection, "")
        finally:
            self._forget_question()
        held = self._hold(parse_claim(reply).messages)
        self.keeper.give_back(self.holder, [lease for lease, _ in held])


class SentinelChannel(Channel, stock.SentinelChannel):  # type: ignore[misc]  # see stock.py
    """The same behind Redis Sentinel."""

    from_transport_options = (
        *stock.SentinelChannel.from_transport_options,
        *Channel.from_transport_options[len(stock.Channel.from_transport_options) :],
    )


def _tag(ref: MessageRef) -> str:
    return f"{ref.entry}.{ref.generation}"
