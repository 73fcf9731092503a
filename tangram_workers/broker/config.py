"""Celery's configuration: the only place where it is set."""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue

from tangram_workers.broker.routing import ActionRoutes
from tangram_workers.domain.queues import CPU_QUEUE, api_queue, gpu_queue
from tangram_workers.runtime.settings import Settings

#: More often than anything is delivered.
NEVER = 10**6


def celery_config(settings: Settings, broker_url: str, routes: ActionRoutes) -> dict[str, Any]:
    """Return the configuration of the fleet's Celery app.

    Args:
        settings: Of this process.
        broker_url: Redis that carries messages, records and results.
        routes: The hook that every submit passes.
    """
    exchange = Exchange("tangram", type="direct")
    queue_names = (CPU_QUEUE, *map(gpu_queue, settings.models), *map(api_queue, settings.providers))
    queues = [Queue(name, exchange, routing_key=name, durable=True) for name in queue_names]
    return {
        "broker_url": broker_url,
        "broker_connection_timeout": settings.connect_timeout_s,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_transport_options": {
            "global_keyprefix": f"{settings.key_prefix}:mq:",
            "node": settings.node,
            "lease_s": settings.lease_s,
            # An action's record counts its tries: its message must not end before it.
            "max_losses": NEVER,
            "max_deliveries": NEVER,
            "socket_connect_timeout": settings.connect_timeout_s,
            "socket_timeout": settings.connect_timeout_s,
            "socket_keepalive": True,
            "max_retries": 1,
        },
        "result_backend": broker_url,
        "result_backend_transport_options": {"global_keyprefix": f"{settings.key_prefix}:mq:"},
        "result_expires": int(settings.result_ttl_s),
        "redis_socket_timeout": settings.connect_timeout_s,
        "redis_socket_connect_timeout": settings.connect_timeout_s,
        "task_routes": (routes,),
        "task_queues": queues,
        "task_default_queue": CPU_QUEUE,
        "task_default_exchange": "tangram",
        "task_default_routing_key": CPU_QUEUE,
        "task_create_missing_queues": False,
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        # A message is acknowledged after its action has ended, whatever the outcome: the store
        # decides on tries, not the transport.
        "task_acks_late": True,
        "task_acks_on_failure_or_timeout": True,
        # A killed pool process stores no failure for a plain Celery caller: its message comes
        # back, is recognised as running elsewhere and dropped, and the lease's end tries again.
        "task_reject_on_worker_lost": True,
        "task_publish_retry": False,
        # A pool slot whose process was killed is free again after this, in seconds.
        "worker_lost_wait": 1.0,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "control_queue_expires": 60.0,
        "event_queue_expires": 60.0,
        "task_track_started": True,
        "enable_utc": True,
    }
