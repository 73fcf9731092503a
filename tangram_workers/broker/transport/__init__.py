"""A Celery transport over Redis: exact scores, leases held by processes, nothing lost.

`TangramAMQP` makes any Celery app use it, for its `redis://`, `rediss://`, `redis+socket://` and
`sentinel://` URLs:

    app = Celery("jobs", broker="redis://...", amqp="tangram_workers.broker.transport:TangramAMQP")

A message may carry, as an option of `apply_async`:

- `priority`: a whole number is a step, as on Celery's own Redis transport: 0 (the default) runs
  first, and within a step the order is arrival. A float is the exact score: lower scores run first,
  equal ones in order of arrival. A message without one has its time of arrival as its score, in
  seconds since 1970, so a score is best made by adding to that or taking away from it.
- `units`: how much of a worker's `capacity_units` it takes; 1 if not given.
- `node`: where alone it should run, while a worker lives there.

An `eta` or `countdown` keeps a message in its queue: no worker holds it before its time.
"""

from tangram_workers.broker.transport.connection import TangramAMQP, TangramConnection

__all__ = ["TangramAMQP", "TangramConnection"]
