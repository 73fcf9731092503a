"""A running fleet and a client for it. Read the tests in this folder first: they are the tour."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tangram_workers import BlockingClient, Client
from tangram_workers.local.fleet import Fleet


@pytest.fixture
async def client(fleet: Fleet) -> AsyncIterator[Client]:
    async with Client(broker_url=fleet.url) as client:
        yield client


@pytest.fixture
def blocking_client(fleet: Fleet) -> Iterator[BlockingClient]:
    with BlockingClient(broker_url=fleet.url) as client:
        yield client
