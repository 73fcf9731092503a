"""Plain Celery code on Celery's own Redis transport and on ours, in turn on one server."""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tangram_workers.bench.broker.celery_app import (
    AMQP_VARIABLE,
    OUR_AMQP,
    SERVED_QUEUE,
    URL_VARIABLE,
    CeleryClient,
)
from tangram_workers.bench.broker.processes import BenchProcess, settled_cpu_s
from tangram_workers.bench.broker.report import BrokerReport, SideRecord
from tangram_workers.bench.demo.progress import ProgressSink
from tangram_workers.local.redis_server import RedisServer
from tangram_workers.stores.redis.connection import connect

#: Pools that are tried, with their slots.
POOLS = {"prefork": 2, "threads": 8}
#: Batches by which the pool is chosen; the median counts.
CHOICE_BATCHES = 3
LATENCY_CALLS = 100
MEMORY_MESSAGES = 5000


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """What to measure."""

    rounds: int = 5
    #: Tasks of a batch.
    size: int = 1000
    #: One of POOLS; None takes the one with which Celery's own transport is faster.
    pool: str | None = None


@dataclass(slots=True)
class _Side:
    url: str
    client: CeleryClient
    worker: BenchProcess
    throughput: list[float] = field(default_factory=list)
    submit_rate: list[float] = field(default_factory=list)
    worker_cpu_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)

    def measure_batch(self, size: int) -> None:
        before_s = settled_cpu_s(self.worker)
        started = time.perf_counter()
        results = self.client.submit(size)
        submitted = time.perf_counter()
        self.client.wait(results)
        ended = time.perf_counter()
        self.throughput.append(size / (ended - started))
        self.submit_rate.append(size / (submitted - started))
        self.worker_cpu_s.append((settled_cpu_s(self.worker) - before_s) / size)

    def measure_latency(self) -> None:
        # The first call after a batch still reads what Celery was told of the batch.
        self.client.wait(self.client.submit(1))
        for _ in range(LATENCY_CALLS):
            started = time.perf_counter()
            self.client.wait(self.client.submit(1))
            self.latency_s.append(time.perf_counter() - started)

    def memory_per_message_bytes(self) -> float:
        store = connect(self.url, timeout_s=30.0)
        try:
            empty = int(store.info("memory")["used_memory_dataset"])
            self.client.publish(MEMORY_MESSAGES)
            full = int(store.info("memory")["used_memory_dataset"])
        finally:
            store.close()
        return (full - empty) / MEMORY_MESSAGES

    def to_record(self) -> SideRecord:
        return SideRecord(
            throughput=tuple(self.throughput),
            submit_rate=tuple(self.submit_rate),
            worker_cpu_s=tuple(self.worker_cpu_s),
            latency_s=tuple(self.latency_s),
            memory_per_message_bytes=self.memory_per_message_bytes(),
        )


def run_broker(config: BrokerConfig, progress: ProgressSink) -> BrokerReport:
    """Measure both sides in turn, and return what was found."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tangram-bench-")))
        server = RedisServer(folder)
        stack.callback(server.stop)
        server.start()
        pool = config.pool or _choose_pool(server, folder, config.size, progress)
        stock = _open_side(stack, server, folder, "stock", pool)
        ours = _open_side(stack, server, folder, "ours", pool)
        progress.begin(f"Both sides, {pool} pool, rounds", config.rounds)
        for number in range(config.rounds):
            # There and back, so that drifts of the machine hit both sides alike.
            turn = (stock, ours) if number % 2 else (ours, stock)
            for side in turn:
                side.measure_batch(config.size)
            for side in turn:
                side.measure_latency()
            progress.advance()
        return BrokerReport(
            pool=pool,
            concurrency=POOLS[pool],
            size=config.size,
            stock=stock.to_record(),
            ours=ours.to_record(),
        )


def _choose_pool(server: RedisServer, folder: Path, size: int, progress: ProgressSink) -> str:
    progress.begin("Celery's own transport, pools", len(POOLS))
    speeds = {}
    for pool in POOLS:
        with contextlib.ExitStack() as stack:
            side = _open_side(stack, server, folder, "stock", pool)
            for _ in range(CHOICE_BATCHES):
                side.measure_batch(size)
            speeds[pool] = statistics.median(side.throughput)
        progress.advance()
    return max(speeds, key=lambda pool: speeds[pool])


def _open_side(
    stack: contextlib.ExitStack, server: RedisServer, folder: Path, name: str, pool: str
) -> _Side:
    amqp, database = {"stock": (None, 1), "ours": (OUR_AMQP, 2)}[name]
    url = server.url.removesuffix("/0") + f"/{database}"
    command = [sys.executable, "-m", "celery", "-A", CeleryClient.__module__ + ":app", "worker"]
    command += [f"--pool={pool}", f"--concurrency={POOLS[pool]}", f"--queues={SERVED_QUEUE}"]
    command += ["--without-mingle", "--without-gossip", "--loglevel=WARNING"]
    environment = {URL_VARIABLE: url} | ({} if amqp is None else {AMQP_VARIABLE: amqp})
    client = CeleryClient(url, amqp)
    stack.callback(client.close)
    worker = stack.enter_context(
        BenchProcess(f"{name}-{pool}", command, log_dir=folder, environment=environment)
    )
    client.wait(client.submit(10))  # until it is there and warm
    worker.check()
    return _Side(url, client, worker)
