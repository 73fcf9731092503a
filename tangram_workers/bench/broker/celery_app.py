"""The Celery app of both sides: a user's plain code, but for one argument.

A worker process takes URL and transport from its environment, which shows no password in the list
of processes: `celery -A tangram_workers.bench.broker.celery_app:app worker`.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

URL_VARIABLE = "BENCH_BROKER_URL"
AMQP_VARIABLE = "BENCH_AMQP"
#: Queue that the worker serves, and one that nobody serves.
SERVED_QUEUE = "bench"
IDLE_QUEUE = "idle"
#: The transport of this project, as a plain Celery app names it.
OUR_AMQP = "tangram_workers.broker.transport:TangramAMQP"
#: Longest wait for one result, in seconds.
RESULT_TIMEOUT_S = 120.0


def noop() -> None:
    """Do nothing."""


def make_app(url: str, amqp: str | None) -> Celery:
    """Return an app with one task that does nothing.

    Args:
        url: Redis of its messages and results.
        amqp: Import path of the transport; None is Celery's own.
    """
    app = Celery("bench", broker=url, backend=url, set_as_current=False, amqp=amqp)
    app.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_default_queue=SERVED_QUEUE,
        broker_connection_retry_on_startup=True,
    )
    app.task(name="bench.noop", shared=False)(noop)
    return app


class CeleryClient:
    """What a user's program does with such an app."""

    def __init__(self, url: str, amqp: str | None) -> None:
        self._app = make_app(url, amqp)
        self._task: Any = self._app.tasks["bench.noop"]

    def submit(self, count: int) -> list[Any]:
        """Submit tasks, one `delay()` after the other."""
        return [self._task.delay() for _ in range(count)]

    def wait(self, results: list[Any]) -> None:
        """Get every result."""
        for result in results:
            result.get(timeout=RESULT_TIMEOUT_S)

    def publish(self, count: int) -> None:
        """Publish messages that nobody takes and whose results nobody wants."""
        with self._app.producer_or_acquire() as producer, producer.batch():
            for _ in range(count):
                self._task.apply_async(producer=producer, queue=IDLE_QUEUE, ignore_result=True)

    def close(self) -> None:
        """Close its connections."""
        self._app.close()


app = make_app(os.environ.get(URL_VARIABLE, "memory://"), os.environ.get(AMQP_VARIABLE))
