"""The fleet's Celery app: `celery -A tangram_workers.tasks.app worker|flower|...`.

A plain Celery user submits with `run_command.delay(argv=["python3", "-V"])`; the router chooses
queue and priority, and the task's result is the action's result as JSON values.
"""

from __future__ import annotations

from typing import Any

from celery import Task, signals
from celery.exceptions import Ignore

from tangram_workers.broker.app import make_app
from tangram_workers.broker.calls import task_name
from tangram_workers.domain.action import ActionKind
from tangram_workers.runtime.fleet_file import find_broker
from tangram_workers.runtime.settings import load_settings
from tangram_workers.tasks.process import WorkerProcess
from tangram_workers.wire.codec import result_to_builtins

settings = load_settings()
app = make_app(settings, find_broker(settings))
_process = WorkerProcess(app, settings)


def _run(task: Task[Any, Any], action_id: str) -> dict[str, Any]:
    queue = str((task.request.delivery_info or {}).get("routing_key"))
    attempt = _process.executor(task.request.hostname or "").attempt(action_id, queue)
    if attempt.republish is not None:
        app.publisher.republish([attempt.republish])
    result = attempt.result
    if result is None:
        # Another attempt gives the answer: this one must not store any for a plain Celery caller.
        raise Ignore
    if task.request.ignore_result:
        # Nobody reads it but an operator in Flower; the waiter has the whole result already.
        return {"outcome": str(result.outcome), "act_s": round(result.timings.act_s, 6)}
    return result_to_builtins(result)


def _register(kind: ActionKind) -> Task[Any, Any]:
    @app.task(name=task_name(kind), bind=True, typing=False)
    def run(self: Task[Any, Any], /, *, action_id: str, **_shown: Any) -> dict[str, Any]:
        return _run(self, action_id)

    return run


run_command = _register(ActionKind.COMMAND)
run_score = _register(ActionKind.SCORE)
run_api_call = _register(ActionKind.API_CALL)


@signals.worker_ready.connect
def _start_upkeep(sender: Any = None, **_more: Any) -> None:
    queues = sorted(queue.name for queue in app.amqp.queues.consume_from.values())
    _process.start_upkeep(sender.hostname, queues)


@signals.worker_shutting_down.connect
def _note_request(**_more: Any) -> None:
    _process.is_asked_to_stop = True


@signals.worker_shutdown.connect
def _stop_upkeep(**_more: Any) -> None:
    _process.stop_upkeep()


@signals.worker_process_shutdown.connect
def _stop_child(**_more: Any) -> None:
    _process.stop_child()


def run_worker(name: str, queues: str, concurrency: int) -> bool:
    """Be a worker until it is asked to stop, or until Celery gives up.

    Args:
        name: In Flower and in results.
        queues: To serve, separated by commas.
        concurrency: Actions at once.

    Returns:
        True if somebody asked it to stop.
    """
    app.worker_main(
        [
            "worker",
            f"--hostname={name}",
            f"--queues={queues}",
            f"--concurrency={concurrency}",
            "--pool=prefork",
            "--without-mingle",
            "--without-gossip",
            "--task-events",
            "--loglevel=WARNING",
        ]
    )
    return _process.is_asked_to_stop
