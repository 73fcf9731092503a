"""How the demo tells a person how far it is."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class ProgressSink(Protocol):
    """Hears of each part of the work."""

    def begin(self, label: str, total: int) -> None:
        """Start a part.

        Args:
            label: What is done, for a person.
            total: Trajectories in it.
        """

    def advance(self) -> None:
        """One more trajectory of the current part has ended."""


class SilentProgress:
    """Says nothing."""

    def begin(self, label: str, total: int) -> None:
        """Say nothing."""

    def advance(self) -> None:
        """Say nothing."""


class RichProgress:
    """Bars on standard error, one below the other. Use it as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<36}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console or Console(stderr=True),
        )
        self._current = self._bars.add_task("", visible=False, total=None)

    def __enter__(self) -> Self:
        """Show the bars."""
        self._bars.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, label: str, total: int) -> None:
        """Add a bar."""
        self._current = self._bars.add_task(label, total=total)

    def advance(self) -> None:
        """Move the last bar by one."""
        self._bars.advance(self._current)
