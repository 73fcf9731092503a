"""The demo's premise, tried on every problem: good answers pass, damaged ones do not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tangram_workers.bench.demo.harness import SOLUTION_FILE
from tangram_workers.bench.demo.problems import Problem, load_problems
from tangram_workers.bench.demo.samples import Sample, SampleKind, make_samples
from tangram_workers.bench.demo.trajectories import make_trajectory
from tangram_workers.domain.reward import command_reward

NONCE = "the-nonce-of-this-test"
#: A fraction of the demo's run timeout: nothing may come near that.
PATIENCE_S = 15.0


@dataclass(frozen=True)
class Ending:
    sample: Sample
    #: None if it had to be stopped.
    exit_code: int | None
    stdout: str
    stderr: str
    reward: float


def run_tests(sample: Sample, patience_s: float = PATIENCE_S) -> Ending:
    """Run the last action of a sample's trajectory in a plain folder."""
    trajectory = make_trajectory(sample, step_id="s", nonce=NONCE, gaps_s=(0.0, 0.0, 0.0))
    action = trajectory.actions[-1]
    command, rule = action.command, action.reward_rule
    assert command is not None
    assert rule is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / SOLUTION_FILE).write_text(sample.code, encoding="utf-8")
        for path, text in command.files.items():
            (folder / path).write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, *command.argv[1:]],
                cwd=folder,
                input=command.stdin,
                env={"LANG": "C.UTF-8", "PATH": os.defpath},
                capture_output=True,
                text=True,
                timeout=patience_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ending(sample, None, "", "", command_reward(rule, None, ""))
    reward = command_reward(rule, done.returncode, done.stdout)
    return Ending(sample, done.returncode, done.stdout, done.stderr, reward)


def run_all(samples: Sequence[Sample]) -> list[Ending]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run_tests, samples))


def described(endings: Sequence[Ending]) -> list[str]:
    return [
        f"{ending.sample.sample_id}: exit code {ending.exit_code}, {ending.stderr[-200:]}"
        for ending in endings
    ]


SAMPLES = make_samples(load_problems())


def test_every_undamaged_sample_gets_the_reward() -> None:
    endings = run_all([sample for sample in SAMPLES if not sample.kind.is_damaged])
    assert len(endings) == 164
    assert described([ending for ending in endings if ending.reward != 1.0]) == []


@pytest.mark.parametrize("kind", [SampleKind.WRONG_RESULT, SampleKind.CRASH, SampleKind.EARLY_EXIT])
def test_no_damaged_sample_gets_a_reward_or_hangs(kind: SampleKind) -> None:
    endings = run_all([sample for sample in SAMPLES if sample.kind is kind])
    assert len(endings) >= 158
    assert described([ending for ending in endings if ending.reward != 0.0]) == []
    assert described([ending for ending in endings if ending.exit_code is None]) == []
    if kind is SampleKind.EARLY_EXIT:
        # The exit code alone would have paid for each of them.
        assert described([ending for ending in endings if ending.exit_code != 0]) == []
    if kind is SampleKind.WRONG_RESULT:
        # Refused by a check, and not because the damage itself fell over.
        assert described([e for e in endings if "AssertionError" not in e.stderr]) == []


def test_an_endless_loop_does_not_end_by_itself() -> None:
    loop = next(sample for sample in SAMPLES if sample.kind is SampleKind.ENDLESS_LOOP)
    ending = run_tests(loop, patience_s=1.0)
    assert ending.exit_code is None
    assert ending.reward == 0.0


ADD = Problem(
    task_id="Tiny/0",
    prompt='def twice(x):\n    return 2 * x\n\n\ndef add(x, y):\n    """Add."""\n',
    entry_point="add",
    solution="    return x + y\n",
    tests="def check(candidate):\n    assert candidate(1, 2) == 3\n    assert add(0, 0) == 0\n"
    "    assert candidate(2, 2) == twice(2)\n",
)
GOOD = ADD.prompt + ADD.solution


@pytest.mark.parametrize(
    "code",
    [
        'print("hello")\n' + GOOD,
        'import sys\nsys.stdout.write("no line break")\n' + GOOD,
        'print("x" * 5_000_000)\n' + GOOD,
        "import sys\nsys.stdout = None\n" + GOOD,
        "import sys\nsys.stdout.close()\n" + GOOD,
        "import os\nos.close(1)\n" + GOOD,
        'import atexit\natexit.register(print, "bye")\n' + GOOD,
        "import atexit, os\natexit.register(os._exit, 3)\n" + GOOD,
        "import os\nos.write = os._exit = None\n" + GOOD,
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n" + GOOD,
        "import os\nopen('tests.py', 'w').write('broken(')\n" + GOOD,
        "import sys\nassert sys.stdin.read() == ''\n" + GOOD,
        "from dataclasses import dataclass\n\n@dataclass\nclass Point:\n    x: 'int'\n\n" + GOOD,
    ],
)
def test_a_right_candidate_is_paid_whatever_else_it_does(code: str) -> None:
    ending = run_tests(Sample(problem=ADD, kind=SampleKind.UNDAMAGED, code=code))
    assert ending.stdout == NONCE + "\n", ending.stderr
    assert ending.reward == 1.0


@pytest.mark.parametrize(
    "code",
    [
        "",
        "add = None\n",
        "import os\nos._exit(0)\n",
        "raise SystemExit(0)\n" + GOOD,
        "import sys\nsys.exit()\n" + GOOD,
        "def add(x, y):\n    raise SystemExit(0)\n",
        "import atexit, os\natexit.register(os._exit, 0)\n",
        # What it prints, and where to, does not matter: it does not know what to print.
        'print("OK")\nimport os\nos.write(1, b"OK\\n")\nos.write(3, b"OK\\n")\nos._exit(0)\n',
        "import sys\nprint(sys.stdin.read(), *sys.argv)\nsys.exit(0)\n",
        # Its own version of what the tests use.
        "def check(candidate):\n    pass\n\n\ndef add(x, y):\n    return 0\n",
        "def twice(x):\n    return 3\n\n\ndef add(x, y):\n    return 3 if x else 0\n",
        "open('tests.py', 'w').write('def check(c): pass')\n\n\ndef add(x, y):\n    return 0\n",
    ],
)
def test_a_wrong_candidate_is_not_paid_whatever_else_it_does(code: str) -> None:
    ending = run_tests(Sample(problem=ADD, kind=SampleKind.WRONG_RESULT, code=code))
    assert ending.exit_code is not None
    assert ending.reward == 0.0
    assert NONCE not in ending.stdout
