"""Message queues with exact scores and leases, over the scripts in `lua/queues/`.

The Celery transport is built on them. Errors are those of redis-py: callers know what to make of a
broker that does not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from tangram_workers.stores.redis.keys import QueueKeys
from tangram_workers.stores.redis.scripts import load_script

#: Most entries of each kind that one sweep looks after; the next sweep takes the rest.
SWEEP_LIMIT = 200
#: Most messages that one purge script removes, so that it never holds the server for long.
PURGE_LIMIT = 1000
#: Seconds between the places of two steps of priority: more than any queue lives.
STEP_S = 1e10
#: Parts of a holder's name: node, worker, and something random.
_HOLDER_SEPARATOR = "\x1f"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueOptions:
    """Bounds that the scripts apply."""

    #: A holder that does not renew for this long has lost what it holds.
    lease_s: float = 5.0
    #: Holders that a message may lose before it becomes a dead letter.
    max_losses: int = 3
    #: Times that a message may be delivered and put back before it becomes a dead letter.
    max_deliveries: int = 20
    #: How long a message that is first in line may be passed over by narrower ones.
    reserve_after_s: float = 5.0

    @property
    def sweep_period_s(self) -> float:
        """Seconds between two sweeps of one process."""
        return min(1.0, self.lease_s / 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutgoingMessage:
    """A message on its way into a queue."""

    queue: str
    payload: bytes
    #: Lower scores run first, equal ones in order of arrival; None is the time of arrival, in
    #: seconds since 1970 by the server's clock.
    score: float | None = None
    #: Without a score: all of a lower step run before all of a higher one.
    step: int = 0
    #: Units that it takes from a worker's capacity.
    units: int = 1
    #: Where alone it should run; None is anywhere.
    node: str | None = None
    #: When it may run at the earliest, in seconds since 1970; None is now.
    due_s: float | None = None


@dataclass(frozen=True, slots=True)
class MessageRef:
    """A message that somebody holds or held."""

    queue: str
    entry: str
    #: Fencing token: only the newest generation can be acknowledged or put back.
    generation: int


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message under a lease."""

    ref: MessageRef
    #: 1 for the first delivery.
    deliveries: int
    units: int
    payload: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimRequest:
    """What a worker can take."""

    #: Made by `holder_name`.
    holder: str
    queues: Sequence[str]
    #: Most messages to take.
    limit: int
    #: Units that are free now, and when nothing runs.
    free_units: int
    capacity_units: int
    #: True to be woken, at the holder's bell, when there is more.
    parks: bool = False
    #: Messages to acknowledge on the way.
    settled: Sequence[MessageRef] = ()


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """What a worker was given, best score first."""

    messages: Sequence[HeldMessage]
    #: True if it will be woken when there is more.
    is_parked: bool
    #: Seconds until the next late message of its queues is due; None if there is none.
    next_due_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A message that was taken out of its queue for good."""

    #: Name to replay or drop it by.
    name: str
    queue: str
    deliveries: int
    buried_s: float
    #: One line for each delivery that counted: which worker, where, when and how it ended.
    story: tuple[str, ...]
    payload: bytes


def holder_name(node: str, worker: str, token: str) -> str:
    """Return the name under which one process holds leases.

    Args:
        node: Machine.
        worker: Name in stories of dead letters.
        token: Something that no other process has.
    """
    return _HOLDER_SEPARATOR.join(
        part.replace(_HOLDER_SEPARATOR, " ") for part in (node, worker, token)
    )


class MessageQueues:
    """The queues under one prefix."""

    def __init__(self, prefix: str, options: QueueOptions) -> None:
        """Make the queues.

        Args:
            prefix: Of every key.
            options: Bounds that the scripts apply.
        """
        self.keys = QueueKeys(prefix)
        self.options = options

    def put(
        self,
        client: redis.Redis,
        messages: Sequence[OutgoingMessage],
        *,
        life_time: tuple[str, int] | None = None,
    ) -> None:
        """Publish messages, all or none.

        Args:
            client: Connections to use.
            messages: At most a thousand or so.
            life_time: A queue, and the milliseconds after which its keys go when it is not used.
        """
        args: list[Any] = ["" if life_time is None else f"{life_time[0]}\n{life_time[1]}"]
        for message in messages:
            args += (
                message.queue,
                _score_text(message),
                message.units if message.node is None else f"{message.units}@{message.node}",
                "" if message.due_s is None else repr(float(message.due_s)),
                message.payload,
            )
        self._run(client, "put", *args)

    def claim(self, client: redis.Redis, request: ClaimRequest) -> ClaimReply:
        """Take the best messages that fit."""
        return parse_claim(self._run(client, "claim", *self._claim_args(request)))

    def claim_command(self, request: ClaimRequest) -> list[Any]:
        """Return the command of a claim, for a connection that somebody else reads.

        Its reply is for `parse_claim`; a server that does not know the script answers NOSCRIPT, and
        `load` mends that.
        """
        digest = load_script("queues/claim").digest
        return ["EVALSHA", digest, 0, self.keys.prefix, *self._claim_args(request)]

    def load(self, client: redis.Redis) -> None:
        """Make the server know the script of `claim_command`."""
        client.script_load(load_script("queues/claim").source)

    def settle(
        self,
        client: redis.Redis,
        holder: str,
        refs: Sequence[MessageRef],
        *,
        queues: Sequence[str] = (),
        free_units: int | None = None,
    ) -> int:
        """Acknowledge messages.

        Args:
            client: Connections to use.
            holder: Who holds them.
            refs: The messages.
            queues: The queues that a waiting holder waits for.
            free_units: Units that it has free now; None if it does not wait.

        Returns:
            How many were acknowledged; the others were no longer this holder's.
        """
        units = "" if free_units is None else free_units
        reply: int = self._run(
            client, "settle", holder, units, len(queues), *queues, *_flat_refs(refs)
        )
        return reply

    def requeue(
        self, client: redis.Redis, holder: str, refs: Sequence[MessageRef], *, counts: bool
    ) -> int:
        """Put held messages back with their old scores.

        Args:
            client: Connections to use.
            holder: Who holds them.
            refs: The messages.
            counts: Whether this delivery is one of those that a message has.

        Returns:
            How many were put back; the others were no longer this holder's.
        """
        most = self.options.max_deliveries
        reply: int = self._run(client, "requeue", holder, int(counts), most, *_flat_refs(refs))
        return reply

    def renew(self, client: redis.Redis, holder: str, refs: Sequence[MessageRef]) -> list[bool]:
        """Renew leases; for each whether it is still held, in order."""
        reply = self._run(client, "renew", holder, self.options.lease_s, *_flat_refs(refs))
        return [bool(state) for state in reply]

    def sweep(self, client: redis.Redis) -> int:
        """Put back or bury whatever's lease is over; returns how many entries were dealt with."""
        reply: int = self._run(
            client,
            "sweep",
            self.options.max_losses,
            SWEEP_LIMIT,
            self.options.lease_s,
            self.options.sweep_period_s,
        )
        return reply

    def retire(self, client: redis.Redis, holder: str, queues: Sequence[str]) -> None:
        """Wake a holder no more, and keep nothing free for it."""
        self._run(client, "retire", holder, *queues)

    def size(self, client: redis.Redis, queue: str) -> int:
        """Return how many messages wait in a queue; late ones do not yet."""
        return int(client.llen(self.keys.queue(queue)))

    def purge(self, client: redis.Redis, queue: str) -> int:
        """Remove every message that waits in a queue; returns how many."""
        total = 0
        while count := self._run(client, "purge", queue, PURGE_LIMIT):
            total += count
        return total

    def delete(self, client: redis.Redis, queue: str) -> None:
        """Remove a queue and all its messages."""
        self._run(client, "delete_queue", queue)

    def dead_letters(self, client: redis.Redis, *, limit: int = 1000) -> list[DeadLetter]:
        """Return dead letters, the newest first."""
        reply = self._run(client, "letters", limit)
        return [
            DeadLetter(
                name=reply[at].decode(),
                queue=reply[at + 1].decode(),
                deliveries=reply[at + 2],
                buried_s=float(reply[at + 3]),
                story=tuple(reply[at + 4].decode().splitlines()),
                payload=reply[at + 5],
            )
            for at in range(0, len(reply), 6)
        ]

    def replay(self, client: redis.Redis, name: str) -> bool:
        """Queue a dead letter again with its old score; False if there is none of that name."""
        return bool(self._run(client, "replay", name))

    def drop(self, client: redis.Redis, name: str) -> bool:
        """Drop a dead letter for good; False if there is none of that name."""
        return bool(self._run(client, "drop", name))

    def _claim_args(self, request: ClaimRequest) -> list[Any]:
        return [
            request.holder,
            request.limit,
            request.free_units,
            request.capacity_units,
            self.options.lease_s,
            self.options.reserve_after_s,
            int(request.parks),
            len(request.queues),
            *request.queues,
            *_flat_refs(request.settled),
        ]

    def _run(self, client: redis.Redis, name: str, *args: Any) -> Any:
        return load_script(f"queues/{name}").run(client, [], [self.keys.prefix, *args])


def parse_claim(reply: Sequence[Any]) -> ClaimReply:
    """Return what the command of a claim was answered."""
    wait_ms, is_parked, *items = reply
    messages = [
        HeldMessage(
            MessageRef(queue.decode(), entry.decode(), generation), deliveries, units, payload
        )
        for queue, entry, generation, deliveries, units, payload in items
    ]
    return ClaimReply(messages, bool(is_parked), None if wait_ms < 0 else wait_ms / 1000)


def _score_text(message: OutgoingMessage) -> str:
    if message.score is None:
        return f"@{message.step * STEP_S!r}"
    return repr(float(message.score))


def _flat_refs(refs: Sequence[MessageRef]) -> list[Any]:
    return [value for ref in refs for value in (ref.queue, ref.entry, ref.generation)]
