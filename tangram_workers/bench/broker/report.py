"""What both sides did: a verdict, one line of JSON, and a table for people. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from tangram_workers.bench.broker.figures import (
    Targets,
    all_met,
    is_met,
    median_ratio,
    percentile,
    ratio,
    rounded,
)

TARGETS: Targets = {
    "plain_celery_throughput_ratio": (">=", 1.3),
    "latency_p50_ratio": ("<=", 0.9),
    "latency_p99_ratio": ("<=", 1.2),
    "worker_cpu_ratio": ("<=", 0.7),
    "memory_per_message_ratio": ("<=", 1.25),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SideRecord:
    """What was measured of one side; one value for each round, in the same order."""

    #: Tasks a second, from the first submit to the last result.
    throughput: tuple[float, ...]
    #: Tasks a second while they are submitted.
    submit_rate: tuple[float, ...]
    #: CPU seconds of the worker for one task.
    worker_cpu_s: tuple[float, ...]
    #: Seconds of each call, one at a time, of all rounds.
    latency_s: tuple[float, ...]
    memory_per_message_bytes: float

    def to_json(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "throughput": self.throughput,
            "submit_rate": self.submit_rate,
            "worker_cpu_us": [each * 1e6 for each in self.worker_cpu_s],
            "latency_p50_ms": percentile(self.latency_s, 0.5) * 1e3,
            "latency_p99_ms": percentile(self.latency_s, 0.99) * 1e3,
            "memory_per_message_bytes": self.memory_per_message_bytes,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerReport:
    """One run."""

    #: Celery's pool of both workers, and its slots: the one that Celery's own transport likes best.
    pool: str
    concurrency: int
    #: Tasks of a batch.
    size: int
    stock: SideRecord
    ours: SideRecord

    def figures(self) -> dict[str, float | None]:
        """Return what the targets are about."""
        stock, ours = self.stock, self.ours
        return {
            "plain_celery_throughput_ratio": median_ratio(ours.throughput, stock.throughput),
            "plain_celery_submit_ratio": median_ratio(ours.submit_rate, stock.submit_rate),
            "latency_p50_ratio": ratio(
                percentile(ours.latency_s, 0.5), percentile(stock.latency_s, 0.5)
            ),
            "latency_p99_ratio": ratio(
                percentile(ours.latency_s, 0.99), percentile(stock.latency_s, 0.99)
            ),
            "worker_cpu_ratio": median_ratio(ours.worker_cpu_s, stock.worker_cpu_s),
            "memory_per_message_ratio": ratio(
                ours.memory_per_message_bytes, stock.memory_per_message_bytes
            ),
        }

    @property
    def is_met(self) -> bool:
        """True if every target is met."""
        return all_met(self.figures(), TARGETS)

    def to_json(self) -> dict[str, Any]:
        """Return all figures, ready for JSON."""
        return {
            **rounded(self.figures()),
            "pool": self.pool,
            "concurrency": self.concurrency,
            "size": self.size,
            "rounds": len(self.ours.throughput),
            "stock": rounded(self.stock.to_json()),
            "ours": rounded(self.ours.to_json()),
            "targets": {name: list(target) for name, target in TARGETS.items()},
            "met": self.is_met,
        }

    def to_table(self) -> Table:
        """Return the table, for a rich console."""
        table = Table(
            title="This transport / Celery's own",
            caption=f"{self.pool} pool with {self.concurrency} slots, medians of "
            f"{len(self.ours.throughput)} rounds of {self.size} tasks",
        )
        table.add_column("figure")
        table.add_column("ratio", justify="right")
        table.add_column("wanted", justify="right")
        table.add_column("met")
        for name, value in self.figures().items():
            target = TARGETS.get(name)
            shown = "-" if value is None else f"{value:.2f}"
            if target is None:
                table.add_row(name, shown, "", "")
            else:
                met = "yes" if is_met(value, target) else "no"
                table.add_row(name, shown, f"{target[0]} {target[1]:g}", met)
        return table
