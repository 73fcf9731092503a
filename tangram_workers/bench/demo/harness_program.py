"""Runs a problem's tests on a candidate; inside the sandbox, with the standard library alone.

    echo NONCE | python3 -I -S check.py ENTRY_POINT

It prints the nonce, and nothing else, on standard output after the last check has passed. Exit
code 0 alone proves nothing, since the candidate can leave the process at any moment. It reads in
its folder: solution.py (the candidate), helpers.py (the problem's own functions) and tests.py.

Limit: candidate and tests share a process, so a candidate that searches its callers' variables
finds the nonce. That takes intent; it does not happen to a program that is merely wrong.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # At run time it would take longer to import than most candidates take to test.
    from types import CodeType
    from typing import Any


def main() -> None:
    """Check the candidate and leave the process."""
    # All of standard input, before any foreign code runs: the candidate finds it empty.
    nonce = sys.stdin.read().strip()
    # What the candidate prints, now, later or from a thread, goes to standard error. So it cannot
    # follow the nonce, nor fill standard output up to where the sandbox cuts it.
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    # The candidate may replace what it can reach by name.
    write, leave = os.write, os._exit

    entry_point = sys.argv[1]
    # Compiled before the candidate runs, which may write to this folder.
    tests = _compiled("tests.py")
    helpers = _compiled("helpers.py")

    # Tests see the problem's own helpers and not the candidate's changed ones.
    checks: dict[str, object] = {"__name__": "tests"}
    exec(helpers, checks)  # noqa: S102 - running given code is what this program is for
    exec(tests, checks)  # noqa: S102

    solution = type(sys)("solution")
    sys.modules["solution"] = solution
    exec(_compiled("solution.py"), solution.__dict__)  # noqa: S102
    candidate = getattr(solution, entry_point)
    # Some tests call the function by its own name too.
    checks[entry_point] = candidate
    check: Any = checks["check"]
    check(candidate)

    try:
        sys.stdout.flush()
    except Exception:  # noqa: BLE001 - the candidate may have put anything there
        write(2, b"The candidate's output could not be flushed.\n")
    write(answer_fd, nonce.encode() + b"\n")
    # At once: handlers and threads of the candidate have no say in the exit code.
    leave(0)


def _compiled(name: str) -> CodeType:
    with open(name, encoding="utf-8") as file:  # noqa: PTH123 - pathlib takes 5 ms to import
        return compile(file.read(), name, "exec")


if __name__ == "__main__":
    main()
