"""The one error tree. Each message says what failed, the value, and what to do next."""

from __future__ import annotations

#: Longest form of a refused value in a message.
MAX_SHOWN_LENGTH = 120


class TangramError(Exception):
    """Anything this package raises on purpose."""


class InputError(TangramError, ValueError):
    """The caller gave something that cannot work; nothing was queued."""


class InvalidActionError(InputError):
    """An action field holds a value it cannot hold."""

    def __init__(self, field: str, value: object, mend: str) -> None:
        super().__init__(f"{field}={shown_value(value)} is not valid: {mend}")
        self.field = field
        self.value = value
        self.mend = mend

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        # The refused value may be a lock or an open file: the copy then holds what was shown of it.
        is_plain = type(self.value) in (str, int, float, bool, type(None))
        value = self.value if is_plain else shown_value(self.value)
        return (_rebuild_invalid_action, (type(self), str(self), self.field, value, self.mend))


def _rebuild_invalid_action(
    kind: type[InvalidActionError], message: str, field: str, value: object, mend: str
) -> InvalidActionError:
    error = kind(field, value, mend)
    error.args = (message,)
    return error


def shown_value(value: object) -> str:
    """Return how a refused value is shown in a message; never fails, whatever the value is."""
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - a foreign __repr__, or an integer of too many digits
        shown = f"<{type(value).__name__}>"
    return shown if len(shown) <= MAX_SHOWN_LENGTH else shown[: MAX_SHOWN_LENGTH - 3] + "..."


class PayloadTooLargeError(InvalidActionError):
    """An action's encoded form is above the documented limit."""


class UnknownQueueError(InputError):
    """No queue of this name, reward model or API provider is known to the fleet."""


class SettingsError(InputError):
    """A TANGRAM_ variable is misspelt or holds a value of the wrong kind."""


class NoFleetError(TangramError):
    """No broker was named and no embedded fleet is running."""


class BrokerUnavailableError(TangramError, ConnectionError):
    """The broker did not answer within the documented bound."""


class ClientClosedError(TangramError, RuntimeError):
    """The client was used outside its context or after close()."""


class MissingPartError(TangramError, RuntimeError):
    """An optional part (a program or an extra) is needed and is not installed."""


class SandboxError(TangramError, RuntimeError):
    """The sandbox itself failed; the action is not to blame and may be tried again."""


class ActionError(TangramError):
    """An action ended in another way than success; `result` has the whole story."""

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[ActionError], tuple[str, object]]:
        return (type(self), (str(self), self.result))


class ActionFailedError(ActionError):
    """The action's own program failed."""


class ActionTimedOutError(ActionError, TimeoutError):
    """The action ran longer than its `timeout_s`."""


class ActionOutOfMemoryError(ActionError, MemoryError):
    """The action needed more memory than its `memory_bytes`."""


class ActionCancelledError(ActionError):
    """Somebody cancelled the action."""


class ActionExpiredError(ActionError, TimeoutError):
    """The action waited longer than its `queue_timeout_s` and never started."""


class InfrastructureError(ActionError):
    """The fleet failed the action (a lost worker, a broken sandbox), not its program."""
