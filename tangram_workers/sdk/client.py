"""The async client."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tangram_workers.domain.action import Action
from tangram_workers.domain.errors import ClientClosedError
from tangram_workers.domain.result import ActionResult
from tangram_workers.runtime.fleet_file import find_broker
from tangram_workers.runtime.settings import Settings, load_settings
from tangram_workers.sdk.builders import RunOptions, code_action, command_action
from tangram_workers.sdk.engine import Engine, Pending
from tangram_workers.sdk.progress import progress_bar

T = TypeVar("T")


class ActionHandle:
    """An action on its way. Await it for its result, from any event loop, any number of times."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._pid = os.getpid()

    @property
    def action_id(self) -> str:
        """Id of the action in logs, in Flower and in the store."""
        return self._pending.action_id

    @property
    def is_done(self) -> bool:
        """True once the result is there."""
        return self._pending.future.done()

    def __await__(self) -> Generator[Any, None, ActionResult]:
        return self.result().__await__()

    async def result(self, *, timeout_s: float | None = None) -> ActionResult:
        """Return the result. A failed action is a result too: see `raise_for_outcome`.

        Args:
            timeout_s: Longest wait in seconds; the action itself goes on after it.

        Raises:
            TimeoutError: If it is not there in time.
            ClientClosedError: If the client was closed, or belongs to the parent of a fork.
        """
        self._require_same_process()
        return await asyncio.wait_for(_await_future(self._pending.future), timeout_s)

    def wait(self, timeout_s: float | None = None) -> ActionResult:
        """Return the result, blocking this thread; for code without an event loop."""
        self._require_same_process()
        return self._pending.future.result(timeout_s)

    def _require_same_process(self) -> None:
        if self._pid != os.getpid() and not self.is_done:
            raise ClientClosedError(
                f"Action {self.action_id} was submitted by the parent of this process; await it "
                "there, or submit it here with the same idempotency_key."
            )


class EngineOwner:
    """What both clients have: settings, and an engine for the process they are used in."""

    def __init__(self, *, settings: Settings | None, broker_url: str | None) -> None:
        overrides = {} if broker_url is None else {"broker_url": broker_url}
        self._settings = settings or load_settings(**overrides)
        self._engine: Engine | None = None
        self._pid = os.getpid()
        self._opened = False
        self._lock = threading.Lock()

    def _open(self) -> Engine:
        engine = Engine(self._settings, find_broker(self._settings))
        engine.start()
        self._engine, self._pid, self._opened = engine, os.getpid(), True
        return engine

    def _close(self) -> None:
        engine, self._engine, self._opened = self._engine, None, False
        if engine is not None and self._pid == os.getpid():
            engine.close()

    def _require_engine(self) -> Engine:
        if not self._opened:
            raise ClientClosedError(
                "This client is not open. Use it inside `async with Client() as client:`, or "
                "`with BlockingClient() as client:`."
            )
        with self._lock:
            if self._engine is None or self._pid != os.getpid():
                # A child of a fork: threads and sockets stayed with the parent.
                return self._open()
            return self._engine


class Client(EngineOwner):
    """Submits actions to a fleet and awaits their results.

    One client serves many event loops and threads, and goes on working in the child of a fork.

    Args:
        settings: Settings to use; None reads the TANGRAM_* variables.
        broker_url: Redis of the fleet; None takes the settings' one, else the embedded fleet's.
    """

    def __init__(self, *, settings: Settings | None = None, broker_url: str | None = None) -> None:
        super().__init__(settings=settings, broker_url=broker_url)

    async def __aenter__(self) -> Self:
        """Reach the fleet.

        Raises:
            NoFleetError: If no broker was named and no embedded fleet is running.
            BrokerUnavailableError: If the broker does not answer within `connect_timeout_s`.
        """
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._close)

    async def submit(self, action: Action) -> ActionHandle:
        """Submit an action.

        Raises:
            InputError: If it cannot work; nothing was queued.
            BrokerUnavailableError: If the broker does not answer in time.
        """
        return (await self.submit_many([action]))[0]

    async def submit_many(self, actions: Iterable[Action]) -> list[ActionHandle]:
        """Submit any number of actions, in batches; one handle for each, in order.

        Raises:
            InputError: If any of them cannot work; nothing was queued.
            BrokerUnavailableError: If the broker does not answer in time.
        """
        engine = self._require_engine()
        pendings = await _await_future(engine.submit(list(actions)))
        return [ActionHandle(pending) for pending in pendings]

    async def gather(
        self, handles: Sequence[ActionHandle], *, progress: bool = False
    ) -> list[ActionResult]:
        """Return every result, in order. A failed action is one of the results, never a raise.

        Args:
            handles: What to wait for.
            progress: Show a bar on standard error.
        """
        with progress_bar(len(handles), enabled=progress) as advance:

            async def one(handle: ActionHandle) -> ActionResult:
                result = await handle
                advance()
                return result

            return list(await asyncio.gather(*(one(handle) for handle in handles)))

    async def run(self, argv: Sequence[str], **options: Unpack[RunOptions]) -> ActionResult:
        """Run a program and return its result.

        Args:
            argv: Program and arguments.
            options: Fields of the command and of the action, side by side.
        """
        return await (await self.submit(command_action(argv, options)))

    async def run_code(
        self, code: str, *, language: str = "python", **options: Unpack[RunOptions]
    ) -> ActionResult:
        """Run code in a fresh sandbox and return its result.

        Args:
            code: The program's text.
            language: "python" or "bash".
            options: Fields of the command and of the action, side by side.
        """
        return await (await self.submit(code_action(code, language, options)))

    async def cancel(self, action: ActionHandle | str) -> str:
        """Cancel an action that waits (at once) or runs (within a second).

        Returns:
            "cancelled", "asked" (it runs; its result will say), "ended" (too late) or "unknown".
        """
        action_id = action if isinstance(action, str) else action.action_id
        return await asyncio.to_thread(self._require_engine().cancel, action_id)

    async def status(self) -> dict[str, Any]:
        """Return workers and queue lengths of the fleet."""
        return await asyncio.to_thread(self._require_engine().status)


async def _await_future(future: Future[T]) -> T:
    """Await a future of another thread; giving up the wait does not cancel what others await."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def on_done(_future: Future[T]) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:
            # The loop was closed meanwhile: nobody waits there any more.
            return

    future.add_done_callback(on_done)
    await done
    return future.result()
