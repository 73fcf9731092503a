"""Duration estimates shared by the fleet."""

from __future__ import annotations

from collections.abc import Mapping

import redis

from tangram_workers.scheduling.estimator import Estimate
from tangram_workers.stores.redis.connection import broker_errors, text
from tangram_workers.stores.redis.keys import Keys


class EstimateStore:
    """Reads and merges the fleet's estimates."""

    def __init__(self, client: redis.Redis, keys: Keys, url: str) -> None:
        self._redis = client
        self._key = keys.estimates
        self._url = url

    def read(self) -> dict[str, Estimate]:
        """Return every estimate of the fleet."""
        with broker_errors(self._url):
            raw = self._redis.hgetall(self._key)
        return {text(key): _decode(text(value)) for key, value in raw.items()}

    def observe(self, durations_s: Mapping[str, list[float]]) -> None:
        """Fold observed run times in; updates of other workers are never lost.

        Args:
            durations_s: Estimate key -> run times on one unit, in seconds.
        """
        keys = list(durations_s)
        if not keys:
            return

        def fold(pipeline: redis.client.Pipeline) -> None:
            known = pipeline.hmget(self._key, keys)
            pipeline.multi()
            for key, value in zip(keys, known, strict=True):
                estimate = Estimate() if value is None else _decode(text(value))
                for duration_s in durations_s[key]:
                    estimate = estimate.observe(duration_s)
                pipeline.hset(self._key, key, _encode(estimate))

        with broker_errors(self._url):
            # Optimistic: read, fold, write, and once more if another worker wrote in between.
            self._redis.transaction(fold, self._key)


def _encode(estimate: Estimate) -> str:
    return f"{estimate.mean_log!r} {estimate.variance_log!r} {estimate.observations}"


def _decode(value: str) -> Estimate:
    mean_log, variance_log, observations = value.split()
    return Estimate(float(mean_log), float(variance_log), int(observations))
