"""The ledger of cores: exclusive, in order of arrival, and safe against any death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangram_workers.domain.errors import InputError, SettingsError
from tangram_workers.resources import inotify
from tangram_workers.resources.cores import CoreGrant, CoreLedger, grant_environment, usable_cores
from tangram_workers.runtime.cancel import CancelToken
from tests.support.processes import open_descriptors
from tests.support.waiting import wait_until

HANG_S = 30.0


@pytest.fixture
def cancel() -> Iterator[CancelToken]:
    with CancelToken() as token:
        yield token


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[CoreLedger]:
    before = open_descriptors()
    made = CoreLedger(tmp_path, range(4))
    yield made
    made.close()
    # What other tests opened may close meanwhile; nothing may have been added.
    assert open_descriptors() <= before


def take(
    ledger: CoreLedger, minimum: int, maximum: int | None = None, *, timeout_s: float = 0.0
) -> CoreGrant | None:
    with CancelToken() as token:
        return ledger.acquire(minimum, maximum or minimum, cancel=token, timeout_s=timeout_s)


def taken(ledger: CoreLedger, minimum: int, maximum: int | None = None) -> CoreGrant:
    grant = take(ledger, minimum, maximum, timeout_s=HANG_S)
    assert grant is not None
    return grant


def count_waiting(ledger: CoreLedger) -> int:
    return len(list((ledger._line).iterdir()))


def test_grant_has_as_many_as_are_free_up_to_the_maximum(ledger: CoreLedger) -> None:
    with taken(ledger, 1, 3) as first, taken(ledger, 1, 3) as second:
        assert (first.core_ids, second.core_ids) == ((0, 1, 2), (3,))


def test_released_cores_can_be_taken_again(ledger: CoreLedger) -> None:
    for _ in range(3):
        with taken(ledger, 4) as grant:
            assert grant.core_ids == (0, 1, 2, 3)


def test_release_is_idempotent(ledger: CoreLedger) -> None:
    grant = taken(ledger, 4)
    grant.release()
    with taken(ledger, 4):
        grant.release()
        assert take(ledger, 1) is None


def test_too_few_free_cores_give_nothing_and_hold_nothing(ledger: CoreLedger) -> None:
    with taken(ledger, 3):
        assert take(ledger, 2) is None
        assert ledger.count_free() == 1


def test_wait_ends_at_its_time_limit(ledger: CoreLedger) -> None:
    with taken(ledger, 4):
        started_s = time.monotonic()
        assert take(ledger, 1, timeout_s=0.05) is None
        assert 0.05 <= time.monotonic() - started_s < HANG_S
        assert count_waiting(ledger) == 0


def test_wait_ends_when_cancelled(ledger: CoreLedger, cancel: CancelToken) -> None:
    with taken(ledger, 4):
        grants: list[CoreGrant | None] = []
        thread = threading.Thread(
            target=lambda: grants.append(ledger.acquire(1, 1, cancel=cancel, timeout_s=HANG_S))
        )
        thread.start()
        wait_until(lambda: count_waiting(ledger) == 1)
        cancel.set()
        thread.join()
        assert grants == [None]
        assert count_waiting(ledger) == 0


def test_cancelled_before_the_start_takes_nothing(ledger: CoreLedger, cancel: CancelToken) -> None:
    cancel.set()
    assert ledger.acquire(1, 1, cancel=cancel, timeout_s=HANG_S) is None


@pytest.mark.parametrize("has_bell", [True, False])
def test_wait_ends_with_a_release(
    ledger: CoreLedger, monkeypatch: pytest.MonkeyPatch, has_bell: bool
) -> None:
    if not has_bell:

        def refuse(_folders: object) -> None:
            raise OSError("too many")

        monkeypatch.setattr(inotify, "FolderBell", refuse)
    holder = taken(ledger, 4)
    grants: list[CoreGrant] = []
    thread = threading.Thread(target=lambda: grants.append(taken(ledger, 2)))
    thread.start()
    wait_until(lambda: count_waiting(ledger) == 1)
    holder.release()
    thread.join()
    [grant] = grants
    # Any two: cores are freed one after another, and the one who waits may look meanwhile.
    assert len(grant.core_ids) == 2
    grant.release()
    assert ledger.count_free() == 4


def test_wide_request_is_not_overtaken_by_later_narrow_ones(ledger: CoreLedger) -> None:
    first = taken(ledger, 1)
    order: list[str] = []

    def work(name: str, minimum: int) -> None:
        with taken(ledger, minimum):
            order.append(name)

    threads = []
    for name, minimum in (("wide", 4), ("narrow 1", 1), ("narrow 2", 1)):
        thread = threading.Thread(target=work, args=(name, minimum))
        thread.start()
        threads.append(thread)
        wait_until(lambda: count_waiting(ledger) == len(threads))
    assert take(ledger, 1) is None  # three are free, but others came first
    assert order == []
    first.release()
    for thread in threads:
        thread.join()
    assert order[0] == "wide"


def test_ledgers_of_one_folder_share_its_cores(ledger: CoreLedger, tmp_path: Path) -> None:
    with taken(CoreLedger(tmp_path, [3, 2]), 2) as grant:
        assert grant.core_ids == (2, 3)
        assert take(ledger, 3) is None


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 1), (2, 1), (5, 5), (-1, -1)])
def test_request_that_can_never_be_granted_is_refused(
    ledger: CoreLedger, cancel: CancelToken, minimum: int, maximum: int
) -> None:
    with pytest.raises(InputError, match=f"minimum={minimum}"):
        ledger.acquire(minimum, maximum, cancel=cancel, timeout_s=0)


@pytest.mark.parametrize("core_ids", [[], [1, 1]])
def test_ledger_needs_distinct_cores(tmp_path: Path, core_ids: list[int]) -> None:
    with pytest.raises(InputError, match="core_ids"):
        CoreLedger(tmp_path, core_ids)


HOLDER = """
import sys, time
from pathlib import Path
from tangram_workers.resources.cores import CoreLedger
from tangram_workers.runtime.cancel import CancelToken
ledger = CoreLedger(Path(sys.argv[1]), range(4))
with CancelToken() as cancel:
    grant = ledger.acquire(int(sys.argv[2]), 4, cancel=cancel, timeout_s=60)
    print("granted", flush=True)
    time.sleep(600)
"""


def start_holder(folder: Path, minimum: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), str(minimum)], stdout=subprocess.PIPE
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_killed_holder_frees_its_cores(ledger: CoreLedger, tmp_path: Path) -> None:
    process = start_holder(tmp_path, 4)
    assert process.stdout is not None
    assert process.stdout.readline() == b"granted\n"
    assert take(ledger, 1) is None
    grants: list[CoreGrant] = []
    thread = threading.Thread(target=lambda: grants.append(taken(ledger, 4)))
    thread.start()
    wait_until(lambda: count_waiting(ledger) == 1)
    kill(process)
    thread.join()
    grants[0].release()


def test_killed_waiter_lets_those_behind_it_pass(ledger: CoreLedger, tmp_path: Path) -> None:
    with taken(ledger, 1):
        process = start_holder(tmp_path, 4)
        wait_until(lambda: count_waiting(ledger) == 1)
        assert take(ledger, 1) is None
        kill(process)
        with taken(ledger, 1) as grant:
            assert grant.core_ids == (1,)


WORKER = """
import os, random, sys
from pathlib import Path
from tangram_workers.resources.cores import CoreLedger
from tangram_workers.runtime.cancel import CancelToken
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
choose = random.Random(seed)
ledger = CoreLedger(folder / "ledger", range(4))
with CancelToken() as cancel:
    for _ in range(60):
        minimum = choose.randint(1, 4)
        with ledger.acquire(minimum, 4, cancel=cancel, timeout_s=60) as grant:
            assert len(grant.core_ids) >= minimum
            for core_id in grant.core_ids:
                # Fails if anybody else has this core now.
                os.close(os.open(folder / f"held-{core_id}", os.O_CREAT | os.O_EXCL))
            for core_id in grant.core_ids:
                os.unlink(folder / f"held-{core_id}")
"""


def test_no_core_is_ever_in_two_grants(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path), str(seed)])
        for seed in range(6)
    ]
    assert [process.wait(timeout=100) for process in processes] == [0] * 6
    assert count_waiting(CoreLedger(tmp_path / "ledger", range(4))) == 0


def test_usable_cores_are_those_of_this_process() -> None:
    own = tuple(sorted(os.sched_getaffinity(0)))
    assert usable_cores(0) == own
    assert usable_cores(1) == own[:1]


def test_more_cores_than_there_are_is_refused() -> None:
    with pytest.raises(SettingsError, match="TANGRAM_CORES=4096"):
        usable_cores(4096)


def test_grant_environment_tells_every_tool_the_same_number() -> None:
    environment = grant_environment((3, 5, 7))
    assert environment["TANGRAM_CPUS"] == "3"
    assert environment["MAKEFLAGS"] == "-j3"
    assert environment["OMP_WAIT_POLICY"] == "passive"
    assert set(environment.values()) == {"3", "-j3", "passive"}
