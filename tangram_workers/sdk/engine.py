"""What every client shares: one thread that submits, one that receives.

Both the async and the blocking client are thin views of this, so there is one implementation. It
works from any number of threads and event loops at once; after a fork the child builds its own.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tangram_workers.broker.app import make_app
from tangram_workers.domain.action import Action
from tangram_workers.domain.errors import (
    BrokerUnavailableError,
    ClientClosedError,
)
from tangram_workers.domain.result import ActionResult, Outcome, Timings
from tangram_workers.runtime.settings import Settings
from tangram_workers.stores.redis.connection import mask_url
from tangram_workers.stores.types import Submission

log = logging.getLogger(__name__)

#: Most actions in one round trip to the store.
BATCH_LIMIT = 1000
#: Longest wait for one result before the receiver looks at anything else, in seconds.
WAIT_S = 0.5
#: Time between two looks after lost work while anything is awaited, in seconds.
RECOVER_PERIOD_S = 2.0
#: Time between two looks at the records of what is awaited, in seconds: what an inbox lost (a
#: broker that fell back to an older state) is found there.
RECONCILE_PERIOD_S = 5.0
RECONCILE_LIMIT = 500
#: A broker that is away for longer answers every waiter with an infrastructure error, in seconds.
BROKER_PATIENCE_S = 60.0


#: Times that an action of which the broker has no record any more is submitted again.
MAX_RESUBMITS = 3

Draft = tuple[Submission, dict[str, Any]]


@dataclass(slots=True)
class Pending:
    """An action whose result is awaited."""

    action_id: str
    submitted_s: float
    #: What was sent, so that it can be sent again to a broker that lost it.
    draft: Draft
    resubmits: int = 0
    future: Future[ActionResult] = field(default_factory=Future)


@dataclass(slots=True)
class _Request:
    actions: Sequence[Action]
    answer: Future[list[Pending]] = field(default_factory=Future)


class Engine:
    """Submits actions and resolves their results for one client in one process."""

    def __init__(self, settings: Settings, url: str) -> None:
        self._settings = settings
        self._url = url
        self._client_id = uuid.uuid4().hex
        self._app = make_app(settings, url)
        self._store = self._app.stores.actions
        self._publisher = self._app.publisher
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._pending: dict[str, Pending] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._away_since: float | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Reach the broker and start both threads.

        Raises:
            BrokerUnavailableError: If it does not answer within `connect_timeout_s`.
        """
        self._store.ping()
        self._threads = [
            threading.Thread(target=self._send_loop, name="tangram-send", daemon=True),
            threading.Thread(target=self._receive_loop, name="tangram-receive", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop; waiters get ClientClosedError. What was submitted goes on without its waiter."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._requests.put(None)
        for thread in self._threads:
            thread.join()
        for pending in self._take_all():
            pending.future.set_exception(
                ClientClosedError(
                    f"The client was closed before action {pending.action_id} ended. "
                    "Await its handle inside the client's context."
                )
            )
        self._store.close()

    def submit(self, actions: Sequence[Action]) -> Future[list[Pending]]:
        """Submit actions, all or none of them.

        Returns:
            A future of one pending action for each, in order. It raises InputError if any of them
            cannot work, BrokerUnavailableError if the broker does not answer in time.
        """
        request = _Request(actions)
        with self._changed:
            if self._closed:
                raise ClientClosedError("This client is closed; open a new one.")
            self._requests.put(request)
        return request.answer

    def cancel(self, action_id: str) -> str:
        """Cancel an action; see ActionStore.cancel."""
        return self._store.cancel(action_id)

    def status(self) -> dict[str, object]:
        """Return workers and queue lengths of the fleet."""
        queues = sorted({*self._store.queues(), *self._app.tangram_routes.snapshot.queues})
        waiting, running = self._store.load(queues)
        return {
            "broker": mask_url(self._url),
            "workers": self._app.stores.workers.read(),
            "waiting": waiting,
            "running": running,
        }

    # --- sending -----------------------------------------------------------------------------

    def _send_loop(self) -> None:
        while True:
            request = self._requests.get()
            if request is None:
                return
            batch = [request]
            size = len(request.actions)
            while size < BATCH_LIMIT:
                try:
                    following = self._requests.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    self._requests.put(None)
                    break
                batch.append(following)
                size += len(following.actions)
            self._send(batch)

    def _send(self, batch: list[_Request]) -> None:
        ready: list[tuple[_Request, list[Pending]]] = []
        prepared = []
        created: list[Pending] = []
        for request in batch:
            try:
                drafts = [
                    self._publisher.prepare(action, self._client_id) for action in request.actions
                ]
            except Exception as error:  # noqa: BLE001  # raised in its caller's thread
                request.answer.set_exception(error)
                continue
            ready.append((request, [self._expect(draft, created) for draft in drafts]))
            prepared += drafts
        try:
            for start in range(0, len(prepared), BATCH_LIMIT):
                chunk = prepared[start : start + BATCH_LIMIT]
                for (submission, _), reply in zip(
                    chunk, self._publisher.submit(chunk), strict=True
                ):
                    if reply.result is not None:
                        self._resolve(submission.action_id, reply.result)
        except Exception as error:  # noqa: BLE001  # raised in its callers' threads
            for pending in created:
                self._forget(pending)
            for request, _ in ready:
                request.answer.set_exception(error)
            return
        for request, pendings in ready:
            request.answer.set_result(pendings)

    def _expect(self, draft: Draft, created: list[Pending]) -> Pending:
        """Await an action before it is submitted, so that no result can come too early."""
        action_id = draft[0].action_id
        with self._changed:
            pending = self._pending.get(action_id)
            if pending is None:
                pending = Pending(action_id, time.time(), draft)
                self._pending[action_id] = pending
                created.append(pending)
                self._changed.notify_all()
            return pending

    # --- receiving ---------------------------------------------------------------------------

    def _receive_loop(self) -> None:
        recover_at = reconcile_at = time.monotonic() + RECOVER_PERIOD_S
        while True:
            with self._changed:
                # Nothing is asked of the broker while nothing is awaited.
                self._changed.wait_for(lambda: self._pending or self._closed)
                if self._closed:
                    return
            try:
                for result in self._store.wait(self._client_id, timeout_s=WAIT_S):
                    self._resolve(result.action_id, result)
                now = time.monotonic()
                if now >= recover_at:
                    recover_at = now + RECOVER_PERIOD_S
                    self._publisher.recover()
                if now >= reconcile_at:
                    reconcile_at = now + RECONCILE_PERIOD_S
                    self._reconcile()
                self._away_since = None
            except BrokerUnavailableError as error:
                self._bear(error)
            except Exception:
                # Whatever it is, those who wait must go on being answered.
                log.exception("results could not be received; trying again")
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, timeout=WAIT_S)

    def _reconcile(self) -> None:
        with self._changed:
            oldest = list(itertools.islice(self._pending.values(), RECONCILE_LIMIT))
            # Whoever was looked at goes to the end of the line, so that all have their turn.
            for pending in oldest:
                self._pending[pending.action_id] = self._pending.pop(pending.action_id)
        ids = [pending.action_id for pending in oldest]
        for pending, result, is_known in zip(
            oldest, self._store.results(ids), self._store.known(ids), strict=True
        ):
            if result is not None:
                self._resolve(pending.action_id, result)
            elif not is_known and time.time() - pending.submitted_s > RECONCILE_PERIOD_S:
                self._submit_again(pending)

    def _submit_again(self, pending: Pending) -> None:
        if pending.resubmits == MAX_RESUBMITS:
            self._fail(pending, f"The broker lost its record {MAX_RESUBMITS + 1} times.")
            return
        log.warning("action %s: the broker has no record of it; submitted again", pending.action_id)
        pending.resubmits += 1
        self._publisher.submit([pending.draft])

    def _bear(self, error: BrokerUnavailableError) -> None:
        """Wait for a broker that is away, up to a bound; then answer every waiter."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            log.warning("%s", error)
        if now - self._away_since > BROKER_PATIENCE_S:
            for pending in self._take_all():
                self._fail(
                    pending,
                    f"{error} It has been away for {BROKER_PATIENCE_S:g} s; the action may "
                    "still run once it is back.",
                )
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout=0.2)

    # --- pending actions ---------------------------------------------------------------------

    def _resolve(self, action_id: str, result: ActionResult) -> None:
        with self._changed:
            pending = self._pending.pop(action_id, None)
        if pending is not None:
            pending.future.set_result(result)

    def _fail(self, pending: Pending, message: str) -> None:
        self._forget(pending)
        if not pending.future.done():
            pending.future.set_result(
                ActionResult(
                    action_id=pending.action_id,
                    outcome=Outcome.INFRASTRUCTURE_ERROR,
                    error=message,
                    timings=Timings(submitted_s=pending.submitted_s, finished_s=time.time()),
                )
            )

    def _forget(self, pending: Pending) -> None:
        with self._changed:
            self._pending.pop(pending.action_id, None)

    def _take_all(self) -> list[Pending]:
        with self._changed:
            taken = list(self._pending.values())
            self._pending.clear()
        return taken
