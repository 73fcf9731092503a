"""Which Redis servers can carry a fleet."""

from __future__ import annotations

import redis

from tangram_workers.domain.errors import BrokerUnavailableError

#: Oldest server whose scripting and list commands are enough.
OLDEST_SERVER = (6, 2)


def require_supported_server(client: redis.Redis) -> None:
    """Refuse a server on which the scripts cannot work.

    Raises:
        BrokerUnavailableError: If it is a Redis Cluster, or too old.
        redis.exceptions.RedisError: If it does not answer.
    """
    server = client.info("server")
    if server.get("redis_mode") == "cluster":
        raise BrokerUnavailableError(
            "The broker is a Redis Cluster. A claim touches keys that no one knows before it runs, "
            "so the fleet needs one server, or several behind a Sentinel. Start one of those, and "
            "name it in TANGRAM_BROKER_URL."
        )
    version = str(server["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_SERVER:
        raise BrokerUnavailableError(
            f"The broker runs Redis {version}. Start one of version "
            f"{'.'.join(map(str, OLDEST_SERVER))} or newer."
        )
