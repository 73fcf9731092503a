"""Connections to Redis, and the translation of its errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit, urlunsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from tangram_workers.domain.errors import BrokerUnavailableError


def mask_url(url: str) -> str:
    """Return the URL with its password hidden, for messages and logs."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def connect(url: str, *, timeout_s: float) -> redis.Redis:
    """Return a client; nothing is sent before its first call.

    Args:
        url: redis:// or rediss:// URL.
        timeout_s: Seconds for connecting, and for the answer to any one command. Blocking reads
            must ask for less.
    """
    return redis.Redis.from_url(
        url,
        socket_connect_timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_keepalive=True,
        health_check_interval=15,
        # One quick second try mends a connection that the server closed while it was idle. A
        # timeout is not tried again: it would double the bound.
        retry=Retry(
            ExponentialBackoff(cap=0.1, base=0.01), 1, supported_errors=(RedisConnectionError,)
        ),
    )


@contextlib.contextmanager
def broker_errors(url: str) -> Iterator[None]:
    """Turn Redis errors into BrokerUnavailableError with the password masked."""
    try:
        yield
    except BrokerUnavailableError:
        raise
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        raise BrokerUnavailableError(
            f"The broker at {mask_url(url)} does not answer: {_first_line(error)}. "
            "Start it, or correct TANGRAM_BROKER_URL."
        ) from error
    except ResponseError as error:
        raise BrokerUnavailableError(
            f"The broker at {mask_url(url)} refused a command: {_first_line(error)}. "
            "Check its password, its memory limit and that nothing else uses its keys."
        ) from error
    except RedisError as error:
        raise BrokerUnavailableError(
            f"The broker at {mask_url(url)} failed: {_first_line(error)}."
        ) from error


def text(raw: object) -> str:
    """Return a reply that is bytes as text. Clients of `connect` never decode by themselves."""
    return cast("bytes", raw).decode()


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
