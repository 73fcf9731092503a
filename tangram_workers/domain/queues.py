"""Names of waiting lines: one per resource type."""

from __future__ import annotations

import re

from tangram_workers.domain.errors import InvalidActionError

CPU_QUEUE = "cpu"
GPU_PREFIX = "gpu."
API_PREFIX = "api."

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def require_name(field: str, value: object) -> str:
    """Refuse a model or provider name that cannot be part of a queue name."""
    if not isinstance(value, str) or NAME_PATTERN.fullmatch(value) is None:
        raise InvalidActionError(
            field,
            value,
            "give 1 to 63 lower-case letters, digits, '.', '_' or '-', starting with a letter "
            "or digit.",
        )
    return str.__str__(value)


def gpu_queue(model: str) -> str:
    """Return the queue of a reward model."""
    return GPU_PREFIX + model


def api_queue(provider: str) -> str:
    """Return the queue of an API provider."""
    return API_PREFIX + provider
