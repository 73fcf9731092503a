"""What one look of the doctor found, and how its looks ask the machine."""

from __future__ import annotations

import enum
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

#: Bound on any one program that the doctor starts.
PROGRAM_TIMEOUT_S = 10.0


class Status(enum.StrEnum):
    """How a part is."""

    OK = "ok"
    DEGRADED = "degraded"  # there, but not all of it works
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What the doctor found out about one part."""

    name: str
    status: Status
    #: A sentence on what was found.
    detail: str
    #: The one command that mends it; None if there is nothing to mend, or no command does.
    mend: str | None = None
    #: What does not work without this part.
    needed_for: str
    #: True if no fleet can run on this machine as it is.
    blocks_fleet: bool = False


def run_program(argv: Sequence[str]) -> tuple[int, str]:
    """Run a program to its end.

    Returns:
        Its exit code, 127 if it could not be started or did not end in time, and what it printed.
    """
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=PROGRAM_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return 127, f"{argv[0]} did not end within {PROGRAM_TIMEOUT_S:g} s"
    except OSError as error:
        return 127, f"{argv[0]} cannot be started: {error.strerror or error}"
    return done.returncode, (done.stdout + done.stderr).decode(errors="backslashreplace").strip()


def first_line(text: object) -> str:
    """Return the first line of a text or an error, without the full stop that a sentence adds."""
    lines = str(text).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(text).__name__


def is_installed(module: str) -> bool:
    """Tell whether a top-level module could be imported; it is not."""
    spec = importlib.util.find_spec(module)
    # Without an origin it is only a folder of that name, such as this repository's docker/.
    return spec is not None and spec.origin is not None


def as_root(command: str) -> str:
    """Return a command as this user has to type it."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def install_package(*, debian: str, fedora: str) -> str:
    """Return the command that installs a system package here."""
    if shutil.which("apt-get") is None and shutil.which("dnf") is not None:
        return as_root(f"dnf install -y {fedora}")
    return as_root(f"apt-get install -y {debian}")


def install_extra(extra: str) -> str:
    """Return the command that installs one of this package's extras."""
    return f"python -m pip install 'tangram-workers[{extra}]'"
