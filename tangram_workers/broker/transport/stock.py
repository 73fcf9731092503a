"""Kombu's own classes as values without types.

The published stubs leave out the inner methods that a transport is made of, and the rest would have
to be repeated here. What this package overrides is held against the real ones by the tests.
"""

from typing import Any

import kombu
import kombu.transport.redis
import kombu.transport.virtual

_redis: Any = kombu.transport.redis

Connection: Any = kombu.Connection
Channel: Any = _redis.Channel
SentinelChannel: Any = _redis.SentinelChannel
Transport: Any = _redis.Transport
SentinelTransport: Any = _redis.SentinelTransport
MultiChannelPoller: Any = _redis.MultiChannelPoller
QoS: Any = kombu.transport.virtual.QoS
