"""The small shell scripts that start a program: one outside the sandbox, one inside.

They are for a plain POSIX /bin/sh (dash, bash and busybox were minded) and mostly use builtins,
since each further program costs as much as the shell itself.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from shlex import quote

from tangram_workers.domain.action import Command
from tangram_workers.sandbox.protocol import Ending, SandboxReport

#: What every program gets; the grant's variables and the command's own win over these.
BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/workspace",
    "USER": "sandbox",
    "LANG": "C.UTF-8",
}
#: As a shell reports a program that is there and cannot be started.
NOT_EXECUTABLE = 126
_MAX_OPEN_FILES = 4096
_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Linux gives arguments and variables a quarter of the stack limit, 8 MiB as a rule.
_ARGUMENTS_BYTES = 2 * 1024 * 1024 - 64 * 1024


def enter_script(entry_files: Iterable[str], *, then: str = 'exec "$@"') -> str:
    """Return the script that puts itself under its bounds, then becomes its arguments.

    Args:
        entry_files: Cgroup files that a process writes 0 to in order to enter.
        then: What to do once inside.
    """
    steps = [f"echo 0 >{quote(path)}" for path in entry_files]
    # When the machine itself runs out of memory, an action dies and not the worker.
    steps.append("echo 1000 >/proc/self/oom_score_adj")
    return f"ulimit -c 0; {' && '.join(steps)} && {{ {then}; }}"


def start_script(
    cwd: str | None,
    *,
    files_script: str | None = None,
    max_processes: int | None = None,
    address_space_bytes: int | None = None,
) -> str:
    """Return the script that ends as the program itself, or with a shell's exit code.

    Args:
        cwd: Folder to start in, below the current one.
        files_script: Path of a `files_script()` to run first.
        max_processes: Bound on processes, where no cgroup has one.
        address_space_bytes: Bound on each process's address space, where no cgroup bounds memory.
    """
    steps = [f"ulimit -n {_MAX_OPEN_FILES} 2>/dev/null"]
    if max_processes is not None:
        # dash and busybox say -p, bash says -u.
        steps.append(f"ulimit -p {max_processes} 2>/dev/null || ulimit -u {max_processes}")
    if address_space_bytes is not None:
        steps.append(f"ulimit -v {max(1, address_space_bytes // 1024)}")
    if files_script is not None:
        steps.append(f". {quote(files_script)} || exit {NOT_EXECUTABLE}")
    if cwd is not None:
        # "./" keeps a leading dash and CDPATH out of it.
        steps.append(f"cd {quote('./' + cwd)} || exit {NOT_EXECUTABLE}")
    steps.append('exec "$@"')
    return "; ".join(steps)


def files_script(files: Mapping[str, str]) -> str:
    """Return a script that writes files below the current folder.

    It runs inside the sandbox: a link that an earlier program of the workspace laid leads nowhere
    that the program could not write to anyway.
    """
    folders = sorted({str(PurePosixPath(path).parent) for path in files} - {"."})
    steps = []
    if folders:
        steps.append("mkdir -p " + " ".join(quote("./" + folder) for folder in folders))
    steps += [f"printf %s {quote(text)} >{quote('./' + path)}" for path, text in files.items()]
    return " &&\n".join(steps) + "\n"


def program_argv(command: Command, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments that start the command, below a shell that may know `env` only in part.

    Some shells drop variables whose names are not names to them; `env` hands those on.
    """
    odd = [name for name in env if _SHELL_NAME.fullmatch(name) is None]
    if not odd:
        return command.argv
    # An option's look in the program's name would be env's own option.
    return ("/usr/bin/env", *(f"{name}={env[name]}" for name in odd), *command.argv)


def exceeds_argument_limit(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Tell whether Linux would refuse to start a program with these."""
    strings = [*argv, *(f"{name}={value}" for name, value in env.items())]
    # Each also takes its NUL and a pointer.
    return sum(len(text.encode()) + 9 for text in strings) > _ARGUMENTS_BYTES


def argument_limit_report(program: str) -> SandboxReport:
    """Return what a shell would report about a program with too many arguments."""
    return not_started_report(f"sh: {program}: {os.strerror(errno.E2BIG)}")


def not_started_report(message: str) -> SandboxReport:
    """Return the report of a program that was not started through a fault of its command."""
    return SandboxReport(
        ending=Ending.EXITED,
        exit_code=NOT_EXECUTABLE,
        stdout=b"",
        stderr=message.encode("utf-8", "backslashreplace") + b"\n",
        stdout_truncated=False,
        stderr_truncated=False,
        run_s=0.0,
        cpu_s=0.0,
        peak_memory_bytes=0,
    )
