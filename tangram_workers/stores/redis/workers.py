"""Who is in the fleet: heartbeats of workers."""

from __future__ import annotations

import json
import secrets
from typing import Any

import redis

from tangram_workers.stores.redis.connection import broker_errors, text
from tangram_workers.stores.redis.keys import Keys

#: A node without a heartbeat for this long is gone, and workspaces with it, in seconds. Longer
#: than a worker takes to be started again.
NODE_TTL_S = 30


class WorkerStore:
    """Heartbeats of workers; one that stops beating is gone after `ttl_s`."""

    def __init__(self, client: redis.Redis, keys: Keys, url: str, *, ttl_s: float) -> None:
        self._redis = client
        self._keys = keys
        self._url = url
        self._ttl_ms = max(1, round(ttl_s * 1000))

    def fleet_id(self) -> str:
        """Return the name that sets this fleet apart on shared machines."""
        with broker_errors(self._url):
            self._redis.set(self._keys.fleet_id, secrets.token_hex(8), nx=True)
            return text(self._redis.get(self._keys.fleet_id))

    def beat(self, name: str, facts: dict[str, Any]) -> None:
        """Say that a worker lives, and what it is; `facts` name its "node"."""
        with broker_errors(self._url):
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.set(self._keys.worker(name), json.dumps(facts), px=self._ttl_ms)
            pipeline.sadd(self._keys.workers, name)
            pipeline.set(self._keys.node(facts["node"]), name, ex=NODE_TTL_S)
            pipeline.execute()

    def leave(self, name: str) -> None:
        """Say that a worker has stopped."""
        with broker_errors(self._url):
            pipeline = self._redis.pipeline(transaction=False)
            pipeline.delete(self._keys.worker(name))
            pipeline.srem(self._keys.workers, name)
            pipeline.execute()

    def read(self) -> dict[str, dict[str, Any]]:
        """Return what living workers say of themselves, and forget the dead."""
        with broker_errors(self._url):
            names = sorted(text(raw) for raw in self._redis.smembers(self._keys.workers))
            if not names:
                return {}
            values = self._redis.mget([self._keys.worker(name) for name in names])
            living = {
                name: json.loads(value)
                for name, value in zip(names, values, strict=True)
                if value is not None
            }
            dead = [name for name in names if name not in living]
            if dead:
                self._redis.srem(self._keys.workers, *dead)
        return living
