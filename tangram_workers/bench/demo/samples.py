"""What a model might have answered: one good and three damaged answers to each problem.

Pure and deterministic. The damage is chosen so that every one of the 164 problems' tests notices
it, the weak ones too; tests/integration/test_demo_samples.py runs them all.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tangram_workers.bench.demo.problems import Problem

#: One problem out of this many has an endless loop among its damaged answers.
LOOP_EVERY = 10


class SampleKind(enum.StrEnum):
    """What is wrong with an answer."""

    UNDAMAGED = "undamaged"
    WRONG_RESULT = "wrong_result"
    CRASH = "crash"
    EARLY_EXIT = "early_exit"
    ENDLESS_LOOP = "endless_loop"

    @property
    def is_damaged(self) -> bool:
        """True if the tests must refuse it."""
        return self is not SampleKind.UNDAMAGED


_DAMAGED = (SampleKind.WRONG_RESULT, SampleKind.CRASH, SampleKind.EARLY_EXIT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One answer to one problem."""

    problem: Problem
    kind: SampleKind
    #: A whole Python file.
    code: str

    @property
    def sample_id(self) -> str:
        """Such as "HumanEval/0.crash"."""
        return f"{self.problem.task_id}.{self.kind}"


def make_samples(problems: Sequence[Problem]) -> tuple[Sample, ...]:
    """Return four answers to each problem, problem by problem."""
    return tuple(
        Sample(problem=problem, kind=kind, code=_code(problem, kind, position))
        for position, problem in enumerate(problems)
        for kind in _kinds(position)
    )


def _kinds(position: int) -> tuple[SampleKind, ...]:
    damaged = list(_DAMAGED)
    # The last of each ten, so that a quick run on a few problems waits for no loop.
    if position % LOOP_EVERY == LOOP_EVERY - 1:
        damaged[position // LOOP_EVERY % len(damaged)] = SampleKind.ENDLESS_LOOP
    return (SampleKind.UNDAMAGED, *damaged)


def _code(problem: Problem, kind: SampleKind, position: int) -> str:
    """Return the source of an answer; crashes and early exits come in several forms in turn."""
    code = problem.prompt + problem.solution
    forms = _FORMS[kind]
    if not forms:
        return code
    return f"{code}\n\n" + forms[position % len(forms)].format(name=problem.entry_point)


#: Lets the good function answer, then changes the answer but keeps its type where it can: a test
#: that compares notices, and one that only looks at the type does not save itself by crashing.
_SPOIL = """\
def _spoil(solve):
    def wrong(*args):
        value = solve(*args)
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + 1
        if isinstance(value, float):
            return value + abs(value) + 1.0
        if isinstance(value, str):
            return value + "?"
        if isinstance(value, (list, tuple)):
            return type(value)([*value, None])
        if isinstance(value, dict):
            return {{**value, "?": 0}}
        return 0 if value is None else None
    return wrong


{name} = _spoil({name})
"""

_CRASHES = (
    # An exception while it is called.
    'def {name}(*args):\n    raise ZeroDivisionError("division by zero")\n',
    # A file that is not Python.
    "def {name}(*args):\n    return (\n",
    # The end of the whole process by a signal.
    "import os\n\n\ndef {name}(*args):\n    os.abort()\n",
    # A stack without end.
    "def {name}(*args):\n    return {name}(*args) + 1\n",
)

#: Each ends the process with exit code 0 before the last check, as if all were well.
_EARLY_EXITS = (
    "import os\n\nos._exit(0)\n",
    'print("all tests passed")\nraise SystemExit(0)\n',
    "import os\n\n\ndef {name}(*args):\n    os._exit(0)\n",
    # On its way out it prints, as a harness might at its end.
    "import atexit, sys\n\natexit.register(print, 'ok')\n\n\ndef {name}(*args):\n    sys.exit(0)\n",
)

_ENDLESS_LOOP = "def {name}(*args):\n    while True:\n        pass\n"

_FORMS = {
    SampleKind.UNDAMAGED: (),
    SampleKind.WRONG_RESULT: (_SPOIL,),
    SampleKind.CRASH: _CRASHES,
    SampleKind.EARLY_EXIT: _EARLY_EXITS,
    SampleKind.ENDLESS_LOOP: (_ENDLESS_LOOP,),
}
