"""The `task_routes` hook: every submit, from the SDK and from a plain Celery call, passes here."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tangram_workers.domain.action import Action
from tangram_workers.domain.errors import BrokerUnavailableError
from tangram_workers.router.policy import POLICIES, RouterSnapshot, decide
from tangram_workers.runtime.settings import Settings
from tangram_workers.scheduling.estimator import Estimate

log = logging.getLogger(__name__)

#: How long a snapshot of the estimates serves, in seconds. A stale one is slower, never wrong.
SNAPSHOT_AGE_S = 2.0
#: Option under which the hook hands the decision on to the submit.
OFFSET_OPTION = "tangram_offset_s"


class ActionRoutes:
    """Calls the pure router with a cached snapshot."""

    def __init__(
        self, settings: Settings, read_estimates: Callable[[], Mapping[str, Estimate]]
    ) -> None:
        self._settings = settings
        self._read_estimates = read_estimates
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._snapshot = RouterSnapshot(
            policy=POLICIES[settings.router_policy],
            models=settings.models,
            providers=settings.providers,
        )

    @property
    def snapshot(self) -> RouterSnapshot:
        """What the router knows, at most SNAPSHOT_AGE_S old while the broker answers."""
        with self._lock:
            if time.monotonic() - self._read_at > SNAPSHOT_AGE_S:
                self._read_at = time.monotonic()
                self._refresh()
            return self._snapshot

    def __call__(
        self,
        name: str,
        args: object,
        kwargs: Mapping[str, Any] | None,
        options: Mapping[str, Any],
        task: object = None,
        **_more: object,
    ) -> dict[str, Any] | None:
        """Route a submit; None for messages that are no action's submit.

        Raises:
            UnknownQueueError: If the fleet has no queue for the action.
        """
        action = (kwargs or {}).get("action")
        if not isinstance(action, Action):
            return None
        decision = decide(action, self.snapshot)
        return {"queue": decision.queue, OFFSET_OPTION: decision.offset_s}

    def _refresh(self) -> None:
        try:
            estimates = self._read_estimates()
        except BrokerUnavailableError as error:
            # The submit itself meets the same broker in a moment and reports it.
            log.debug("estimates not refreshed: %s", error)
            return
        self._snapshot = RouterSnapshot(
            policy=self._snapshot.policy,
            models=self._snapshot.models,
            providers=self._snapshot.providers,
            estimates=estimates,
        )
