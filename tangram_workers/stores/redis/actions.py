"""The action store: records, leases and fenced completion over the scripts in `lua/`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import NoScriptError

from tangram_workers.domain.action import Action
from tangram_workers.domain.result import ActionResult
from tangram_workers.stores.redis.connection import broker_errors, connect, text
from tangram_workers.stores.redis.keys import Keys
from tangram_workers.stores.redis.scripts import load_script
from tangram_workers.stores.types import (
    Claim,
    ClaimRefusal,
    LeaseState,
    Republish,
    Submission,
    SubmitReply,
)
from tangram_workers.wire.codec import decode_action, decode_result, encode_result

#: Most actions that one sweep looks after; the next sweep takes the rest.
SWEEP_LIMIT = 200


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Bounds that the scripts apply."""

    lease_s: float
    max_attempts: int
    result_ttl_s: float
    workspace_ttl_s: float


class ActionStore:
    """Records of actions in Redis. One per process; safe to use from many threads.

    Every method raises BrokerUnavailableError if Redis does not answer in time.
    """

    def __init__(self, url: str, keys: Keys, options: StoreOptions, *, timeout_s: float) -> None:
        self._url = url
        self._keys = keys
        self._options = options
        self._redis = connect(url, timeout_s=timeout_s)

    @property
    def keys(self) -> Keys:
        """Names of the keys that this store uses."""
        return self._keys

    @property
    def client(self) -> redis.Redis:
        """The connection pool, for the other stores of this process."""
        return self._redis

    def close(self) -> None:
        """Close every connection."""
        self._redis.close()

    # --- submit and wait ---------------------------------------------------------------------

    def submit(self, submissions: Sequence[Submission]) -> list[SubmitReply]:
        """Record actions in one round trip; one that is known under its id is joined.

        Returns:
            One reply for each submission, in order.
        """
        script = load_script("submit")
        calls = [self._submit_call(submission) for submission in submissions]
        with broker_errors(self._url):
            if len(calls) == 1:
                replies = [script.run(self._redis, *calls[0])]
            else:
                replies = self._pipelined("submit", calls)
        return [_submit_reply(reply) for reply in replies]

    def wait(self, client_id: str, *, timeout_s: float, limit: int = 500) -> list[ActionResult]:
        """Take results from a client's inbox; wait for the first one.

        Args:
            client_id: Whose inbox.
            timeout_s: Longest wait in seconds, below the connection's own timeout.
            limit: Most results to take.

        Returns:
            Results that have arrived; empty if none did in time.
        """
        inbox = self._keys.inbox(client_id)
        with broker_errors(self._url):
            first = self._redis.blpop([inbox], timeout=timeout_s)
            if first is None:
                return []
            bodies = [first[1], *(self._redis.lpop(inbox, limit - 1) or [])]
        return [decode_result(body) for body in bodies]

    def results(self, action_ids: Sequence[str]) -> list[ActionResult | None]:
        """Return the results of actions as far as they have ended, in one round trip."""
        with broker_errors(self._url):
            pipeline = self._redis.pipeline(transaction=False)
            for action_id in action_ids:
                pipeline.hget(self._keys.action(action_id), "result")
            bodies = pipeline.execute()
        return [None if body is None else decode_result(body) for body in bodies]

    def known(self, action_ids: Sequence[str]) -> list[bool]:
        """Return for each action whether the store has a record of it, in one round trip."""
        with broker_errors(self._url):
            pipeline = self._redis.pipeline(transaction=False)
            for action_id in action_ids:
                pipeline.exists(self._keys.action(action_id))
            return [bool(found) for found in pipeline.execute()]

    def cancel(self, action_id: str) -> str:
        """Cancel an action.

        Returns:
            "cancelled" (it waited and has ended), "asked" (it runs; its worker will stop it),
            "ended" (too late) or "unknown".
        """
        reply: bytes = self._run(
            "cancel",
            [self._keys.action(action_id), self._keys.due],
            [action_id, self._ttl, self._keys.waiting("")],
        )
        return reply.decode()

    # --- workers -----------------------------------------------------------------------------

    def claim(self, action_id: str, queue: str, *, holder: str, node: str) -> Claim | ClaimRefusal:
        """Take a waiting action under a lease."""
        reply = self._run(
            "claim",
            self._action_keys(action_id, queue),
            [
                action_id,
                holder,
                node,
                self._options.lease_s,
                self._ttl,
                self._keys.trajectory(""),
                max(1, round(self._options.workspace_ttl_s)),
                self._keys.node(""),
            ],
        )
        verdict = reply[0].decode()
        if verdict != "claimed":
            if verdict == "ended":
                return ClaimRefusal(verdict, result=decode_result(reply[1]))
            if verdict == "elsewhere":
                republish = Republish(action_id, queue, float(reply[1]), reply[2].decode())
                return ClaimRefusal(verdict, republish=republish)
            return ClaimRefusal(verdict)
        _, body, attempt, generation, submitted_s, queued_s, now_s, workspace = reply
        return Claim(
            action_id=action_id,
            queue=queue,
            action=decode_action(body),
            attempt=int(attempt),
            generation=int(generation),
            submitted_s=float(submitted_s),
            queued_s=float(queued_s),
            claimed_s=float(now_s),
            workspace=workspace.decode() or None,
        )

    def renew(self, claims: Iterable[Claim]) -> list[LeaseState]:
        """Renew leases in one round trip; one state for each claim, in order."""
        calls = [
            (
                [self._keys.action(claim.action_id), self._keys.due],
                [claim.action_id, claim.generation, self._options.lease_s],
            )
            for claim in claims
        ]
        with broker_errors(self._url):
            return [LeaseState(reply.decode()) for reply in self._pipelined("renew", calls)]

    def complete(self, claim: Claim, result: ActionResult) -> bool:
        """End an action with its result.

        Returns:
            False if the lease was lost and the result refused.
        """
        reply: bytes = self._run(
            "complete",
            self._action_keys(claim.action_id, claim.queue),
            [
                claim.action_id,
                claim.generation,
                str(result.outcome),
                encode_result(result),
                self._ttl,
                self._trajectory_to_end(claim.action),
            ],
        )
        return reply == b"completed"

    def give_back(self, claim: Claim) -> Republish | None:
        """Put a claimed action back into its queue.

        Returns:
            What must be published again; None if the lease was lost.
        """
        score: bytes | None = self._run(
            "give_back",
            self._action_keys(claim.action_id, claim.queue),
            [claim.action_id, claim.generation],
        )
        if score is None:
            return None
        return Republish(claim.action_id, claim.queue, float(score))

    # --- upkeep ------------------------------------------------------------------------------

    def sweep(self) -> list[Republish]:
        """End or requeue every action whose time is up.

        Returns:
            Actions whose message must be published again.
        """
        reply = self._run(
            "sweep",
            [self._keys.due],
            [
                self._keys.action(""),
                self._keys.waiting(""),
                self._options.max_attempts,
                self._ttl,
                SWEEP_LIMIT,
                self._options.lease_s,
            ],
        )
        return [
            Republish(reply[i].decode(), reply[i + 1].decode(), float(reply[i + 2]))
            for i in range(0, len(reply), 4)
        ]

    def queues(self) -> list[str]:
        """Return every queue that ever held an action."""
        with broker_errors(self._url):
            return sorted(text(name) for name in self._redis.smembers(self._keys.queues))

    def waiting_counts(self, queues: Sequence[str]) -> list[int]:
        """Return how many actions wait in each queue, in one round trip."""
        with broker_errors(self._url):
            pipeline = self._redis.pipeline(transaction=False)
            for queue in queues:
                pipeline.zcard(self._keys.waiting(queue))
            return [int(count) for count in pipeline.execute()]

    def waiting(self, queue: str, *, limit: int, older_than_s: float) -> list[Republish]:
        """Return the first actions that wait in a queue, best score first.

        Args:
            queue: Which queue.
            limit: Most actions to look at.
            older_than_s: Leave out what has been waiting for less than this many seconds.
        """
        with broker_errors(self._url):
            seconds, microseconds = self._redis.time()
            key = self._keys.waiting(queue)
            # The stubs know no pairs.
            entries: list[Any] = self._redis.zrange(key, 0, limit - 1, withscores=True)
            pipeline = self._redis.pipeline(transaction=False)
            for raw, _ in entries:
                pipeline.hget(self._keys.action(text(raw)), "queued_s")
            queued_s = pipeline.execute()
        latest_s = seconds + microseconds / 1e6 - older_than_s
        return [
            Republish(text(raw), queue, float(score))
            for (raw, score), since_s in zip(entries, queued_s, strict=True)
            if since_s is not None and float(since_s) <= latest_s
        ]

    def load(self, queues: Sequence[str]) -> tuple[dict[str, int], int]:
        """Return how many actions wait in each queue, and how many run, at one moment.

        Args:
            queues: All of them: what is open and waits in none of them is taken to run.
        """
        with broker_errors(self._url):
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.zcard(self._keys.due)
            for queue in queues:
                pipeline.zcard(self._keys.waiting(queue))
            open_count, *waiting = (int(count) for count in pipeline.execute())
        return dict(zip(queues, waiting, strict=True)), open_count - sum(waiting)

    def ping(self) -> None:
        """Reach the server or raise."""
        with broker_errors(self._url):
            self._redis.ping()

    # -----------------------------------------------------------------------------------------

    @property
    def _ttl(self) -> int:
        return max(1, round(self._options.result_ttl_s))

    def _trajectory_to_end(self, action: Action) -> str:
        if not action.last_of_trajectory or action.trajectory_id is None:
            return ""
        return self._keys.trajectory(action.trajectory_id)

    def _action_keys(self, action_id: str, queue: str) -> list[str]:
        return [self._keys.action(action_id), self._keys.waiting(queue), self._keys.due]

    def _submit_call(self, submission: Submission) -> tuple[list[str], list[Any]]:
        inbox = self._keys.inbox(submission.client_id) if submission.client_id else ""
        return (
            [*self._action_keys(submission.action_id, submission.queue), self._keys.queues],
            [
                submission.action_id,
                submission.body,
                submission.queue,
                submission.offset_s,
                submission.queue_timeout_s,
                inbox,
                int(submission.client_id is None),
                submission.trajectory_id or "",
            ],
        )

    def _run(self, name: str, keys: list[str], args: list[Any]) -> Any:
        with broker_errors(self._url):
            return load_script(name).run(self._redis, keys, args)

    def _pipelined(self, name: str, calls: Sequence[tuple[list[str], list[Any]]]) -> list[Any]:
        """Run one script many times in a round trip; idempotent scripts only."""
        script = load_script(name)
        pipeline = self._redis.pipeline(transaction=False)
        for keys, args in calls:
            script.queue(pipeline, keys, args)
        try:
            return pipeline.execute()
        except NoScriptError:
            self._redis.script_load(script.source)
            for keys, args in calls:
                script.queue(pipeline, keys, args)
            return pipeline.execute()


def _submit_reply(reply: list[bytes]) -> SubmitReply:
    verdict = reply[0].decode()
    if verdict == "ended":
        return SubmitReply(verdict, result=decode_result(reply[1]))
    return SubmitReply(verdict, float(reply[1]))
