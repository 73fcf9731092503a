"""Every Redis key of the fleet: name, type, life time, writer.

Records of actions start with `<key_prefix>:`, keys of the message queues with `<key_prefix>:mq:`,
so fleets can share a Redis. A plain Celery app on the transport has the keys of the queues alone,
below its own `global_keyprefix`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """Keys of the message queues under one prefix.

    For each queue Q, written by put, claim and whatever ends or moves a message:

    - `Q`: list of as many ones as messages wait, so that every reader of LLEN sees the length.
    - `Q:c`: set of the classes that have entries, "<units>[@<node>]".
    - `Q:z:<class>`: sorted set, entry -> score.
    - `Q:m`: hash, entry -> payload.
    - `Q:h`: hash, entry -> generation, deliveries, score, class, holder, story, losses.
    - `Q:d`: sorted set, late entry -> when it is due.
    - `Q:b`: hash, entry that was passed over -> since when, and for whom units are kept. TTL a day.
    - `Q:w`: sorted set, workers that wait -> their free units. TTL 60 s.
    - `Q:x`: string, life time of the queue in milliseconds, where it has one; then all of its keys
      live that long after their last use.

    All but the last three vanish when their queue is empty.
    """

    prefix: str

    def queue(self, name: str) -> str:
        """List: its length is how many messages wait."""
        return self.prefix + name

    def life_time(self, queue: str) -> str:
        """String: `Q:x` of a queue. Written by whoever declares it or first writes to it."""
        return f"{self.prefix}{queue}:x"

    @property
    def queues(self) -> str:
        """Set: every queue without a life time that ever held a message."""
        return f"{self.prefix}_tangram:queues"

    @property
    def sequence(self) -> str:
        """String: number of the last entry."""
        return f"{self.prefix}_tangram:sequence"

    @property
    def leases(self) -> str:
        """Sorted set: queue, line feed and entry -> end of the lease."""
        return f"{self.prefix}_tangram:leases"

    @property
    def dead(self) -> str:
        """Sorted set: name of a dead letter -> when it was buried. TTL a week."""
        return f"{self.prefix}_tangram:dead"

    @property
    def dead_letters(self) -> str:
        """Hash: name -> dead letter. TTL a week."""
        return f"{self.prefix}_tangram:dead:letters"

    @property
    def swept(self) -> str:
        """String: when sweep ran last. TTL an hour. `judge_from`: before it, none is judged."""
        return f"{self.prefix}_tangram:swept"

    def bell(self, holder: str) -> str:
        """List: a push wakes a worker that waits. TTL 60 s."""
        return f"{self.prefix}_tangram:bell:{holder}"

    def holder(self, holder: str) -> str:
        """String: present while a holder renews. TTL two leases, as `node:<node>` beside it."""
        return f"{self.prefix}_tangram:holder:{holder}"


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names under one prefix."""

    prefix: str

    def action(self, action_id: str) -> str:
        """Hash: the record of one action. No TTL while open, `result_ttl_s` once it has ended.

        Fields: body, queue, offset, state, submitted_s, queue_timeout_s, queued_s, attempt,
        generation, holder, node, started_s, cancel, inboxes, plain, trajectory, result.
        Written by submit, claim, complete, give_back, cancel and sweep.
        """
        return f"{self.prefix}:action:{action_id}"

    def waiting(self, queue: str) -> str:
        """Sorted set: action id -> score of what waits in a queue. Empty sets vanish."""
        return f"{self.prefix}:waiting:{queue}"

    @property
    def due(self) -> str:
        """Sorted set: action id -> time at which somebody must look at it.

        That is the end of its queue time while it waits, the end of its lease while it runs.
        """
        return f"{self.prefix}:due"

    @property
    def queues(self) -> str:
        """Set: every queue that ever held an action. Written by submit."""
        return f"{self.prefix}:queues"

    @property
    def fleet_id(self) -> str:
        """String: a random name, given once, that tells this fleet's data from any other's."""
        return f"{self.prefix}:fleet"

    def trajectory(self, trajectory_id: str) -> str:
        """String: which workspace a trajectory has, and on which node. TTL `workspace_ttl_s`.

        Written by claim, removed when the last action of the trajectory completes.
        """
        return f"{self.prefix}:trajectory:{trajectory_id}"

    def node(self, name: str) -> str:
        """String: present while a node has had a living worker lately. Written by workers."""
        return f"{self.prefix}:node:{name}"

    def inbox(self, client_id: str) -> str:
        """List: results for one client. TTL `result_ttl_s`, renewed by each push."""
        return f"{self.prefix}:inbox:{client_id}"

    def worker(self, name: str) -> str:
        """String: what a worker says of itself, as JSON. TTL: three of its heartbeats."""
        return f"{self.prefix}:worker:{name}"

    @property
    def workers(self) -> str:
        """Set: names of workers. Written by workers, pruned on reading."""
        return f"{self.prefix}:workers"

    @property
    def estimates(self) -> str:
        """Hash: estimate key -> "mean_log variance_log observations". Written by workers."""
        return f"{self.prefix}:estimates"
