"""Every Redis key of the fleet: name, type, life time, writer.

All of them start with `<key_prefix>:`, so fleets can share a Redis. Queues of messages are the
transport's own keys and are named after the queue.
"""

from __future__ import annotations

from dataclasses import dataclass


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
