"""`make_app`: the one factory of the fleet's Celery app."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from celery import Celery

from tangram_workers.broker.calls import kind_of_task
from tangram_workers.broker.config import celery_config
from tangram_workers.broker.publisher import Publisher
from tangram_workers.broker.routing import ActionRoutes
from tangram_workers.broker.transport import TangramAMQP
from tangram_workers.runtime.settings import Settings
from tangram_workers.scheduling.estimator import Estimate
from tangram_workers.stores.redis.actions import ActionStore, StoreOptions
from tangram_workers.stores.redis.estimates import EstimateStore
from tangram_workers.stores.redis.keys import Keys
from tangram_workers.stores.redis.workers import WorkerStore

#: A worker that does not beat for this many of its beats is gone.
BEATS_OF_GRACE = 3
HEARTBEAT_S = 1.0


class Stores:
    """The stores of one process over one connection pool."""

    def __init__(self, settings: Settings, url: str) -> None:
        keys = Keys(settings.key_prefix)
        options = StoreOptions(
            lease_s=settings.lease_s,
            max_attempts=settings.max_attempts,
            result_ttl_s=settings.result_ttl_s,
            workspace_ttl_s=settings.workspace_ttl_s,
        )
        self.actions = ActionStore(url, keys, options, timeout_s=settings.connect_timeout_s)
        self.estimates = EstimateStore(self.actions.client, keys, url)
        self.workers = WorkerStore(
            self.actions.client, keys, url, ttl_s=BEATS_OF_GRACE * HEARTBEAT_S
        )


class TangramCelery(Celery):
    """A Celery app whose action tasks are submitted through the router and the store."""

    tangram_settings: Settings
    tangram_url: str

    def __init__(self, settings: Settings, url: str) -> None:
        self.tangram_settings = settings
        self.tangram_url = url
        self._tangram_lock = threading.Lock()
        self._tangram_stores: tuple[int, Stores] | None = None
        self.tangram_routes = ActionRoutes(settings, self._read_estimates)
        super().__init__("tangram_workers", set_as_current=False, amqp=TangramAMQP)
        self.conf.update(celery_config(settings, url, self.tangram_routes))

    @property
    def stores(self) -> Stores:
        """The stores of this process; new ones after a fork, since sockets cannot be shared."""
        with self._tangram_lock:
            if self._tangram_stores is None or self._tangram_stores[0] != os.getpid():
                self._tangram_stores = (
                    os.getpid(),
                    Stores(self.tangram_settings, self.tangram_url),
                )
            return self._tangram_stores[1]

    def _read_estimates(self) -> Mapping[str, Estimate]:
        return self.stores.estimates.read()

    @property
    def publisher(self) -> Publisher:
        """Submits actions for this process."""
        return Publisher(
            self,
            self.stores.actions,
            self.tangram_url,
        )

    def send_message(self, name: str, **options: Any) -> None:
        """Publish the message of an action that is already recorded."""
        super().send_task(name, **options)

    def send_task(  # type: ignore[override]  # narrowed to what callers of tasks pass
        self, name: str, args: Any = None, kwargs: Any = None, **options: Any
    ) -> Any:
        """Submit an action, or send any other task as Celery does."""
        kind = kind_of_task(name)
        if kind is None:
            return super().send_task(name, args, kwargs, **options)
        return self.publisher.submit_call(kind, args, kwargs, options)


def make_app(settings: Settings, url: str) -> TangramCelery:
    """Return the fleet's Celery app.

    Args:
        settings: Of this process.
        url: Redis that carries the fleet.
    """
    return TangramCelery(settings, url)
