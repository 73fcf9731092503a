"""`tangram bench`: each benchmark runs whole, in small."""

from __future__ import annotations

from tangram_workers.bench.broker.report import TARGETS
from tests.support.cli import Tangram


def test_the_broker_is_compared_with_celerys_own_transport(no_fleet: Tangram) -> None:
    done = no_fleet("bench", "broker", "--rounds=1", "--size=20", "--pool=threads", "--json")
    assert done.code in (0, 1), done.stderr
    report = done.json
    assert report["met"] is (done.code == 0)
    assert (report["rounds"], report["size"], report["pool"]) == (1, 20, "threads")
    for name in TARGETS:
        assert report[name] > 0, name
    # Of a batch this small nothing can be said but that both sides did it.
    for side in (report["stock"], report["ours"]):
        assert len(side["throughput"]) == 1
        assert side["latency_p99_ms"] >= side["latency_p50_ms"] > 0
