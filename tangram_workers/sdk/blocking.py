"""The blocking client, for scripts and for code without an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from tangram_workers.domain.action import Action
from tangram_workers.domain.result import ActionResult
from tangram_workers.runtime.settings import Settings
from tangram_workers.sdk.builders import RunOptions, code_action, command_action
from tangram_workers.sdk.client import ActionHandle, EngineOwner
from tangram_workers.sdk.progress import progress_bar


class BlockingClient(EngineOwner):
    """The same as `Client` without `await`. Safe to use from many threads and after a fork.

    Args:
        settings: Settings to use; None reads the TANGRAM_* variables.
        broker_url: Redis of the fleet; None takes the settings' one, else the embedded fleet's.
    """

    def __init__(self, *, settings: Settings | None = None, broker_url: str | None = None) -> None:
        super().__init__(settings=settings, broker_url=broker_url)

    def __enter__(self) -> Self:
        """Reach the fleet; raises as `Client` does."""
        self._open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def submit(self, action: Action) -> ActionHandle:
        """Submit an action; its handle's `wait()` gives the result."""
        return self.submit_many([action])[0]

    def submit_many(self, actions: Iterable[Action]) -> list[ActionHandle]:
        """Submit any number of actions, in batches; one handle for each, in order."""
        pendings = self._require_engine().submit(list(actions)).result()
        return [ActionHandle(pending) for pending in pendings]

    def gather(
        self, handles: Sequence[ActionHandle], *, progress: bool = False
    ) -> list[ActionResult]:
        """Return every result, in order. A failed action is one of the results, never a raise."""
        with progress_bar(len(handles), enabled=progress) as advance:
            results = []
            for handle in handles:
                results.append(handle.wait())
                advance()
            return results

    def run(self, argv: Sequence[str], **options: Unpack[RunOptions]) -> ActionResult:
        """Run a program and return its result."""
        return self.submit(command_action(argv, options)).wait()

    def run_code(
        self, code: str, *, language: str = "python", **options: Unpack[RunOptions]
    ) -> ActionResult:
        """Run code in a fresh sandbox and return its result."""
        return self.submit(code_action(code, language, options)).wait()

    def cancel(self, action: ActionHandle | str) -> str:
        """Cancel an action; see `Client.cancel`."""
        action_id = action if isinstance(action, str) else action.action_id
        return self._require_engine().cancel(action_id)

    def status(self) -> dict[str, Any]:
        """Return workers and queue lengths of the fleet."""
        return self._require_engine().status()
