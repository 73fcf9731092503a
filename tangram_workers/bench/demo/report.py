"""What the demo found: a verdict, one line of JSON, and a table for people. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tangram_workers.bench.demo.figures import StepFigures, step_figures
from tangram_workers.bench.demo.records import StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class DemoReport:
    """One run of the demo: the same trajectories under both policies."""

    problems: int
    #: Endless loops among the samples.
    loops: int
    seed: int
    #: What the recorded gaps were multiplied by.
    gap_factor: float
    fleet: StepRecord
    static: StepRecord

    def faults(self) -> tuple[str, ...]:
        """Return what is not as it must be, a sentence for each; nothing if all is well."""
        return tuple(
            f"{step.policy}: {fault}"
            for step in (self.fleet, self.static)
            for fault in _faults(step_figures(step), self.loops)
        )

    @property
    def is_ok(self) -> bool:
        """True if every reward is right and nothing else went wrong."""
        return not self.faults()

    def to_json(self) -> dict[str, Any]:
        """Return all figures, ready for JSON; those of the fleet stand at the top."""
        fleet, static = step_figures(self.fleet), step_figures(self.static)
        return {
            "problems": self.problems,
            **_rounded(asdict(fleet)),
            "static": _rounded(asdict(static)),
            "ratio": _rounded(
                {
                    "act": _ratio(static.act_mean_s, fleet.act_mean_s),
                    "step": _ratio(static.step_s, fleet.step_s),
                    "core_s_reserved": _ratio(static.core_s_reserved, fleet.core_s_reserved),
                }
            ),
            "endless_loops": self.loops,
            "gap_factor": round(self.gap_factor, 6),
            "cores": self.fleet.cores,
            "seed": self.seed,
            "ok": self.is_ok,
        }

    def to_table(self) -> Table:
        """Return the table, for a rich console."""
        fleet, static = step_figures(self.fleet), step_figures(self.static)
        table = Table(
            title=f"One RL step: {self.problems} problems, {fleet.samples} samples, "
            f"{self.fleet.cores} cores",
            caption="static: a core for each trajectory's whole life",
        )
        table.add_column("figure")
        for name in ("fleet", "static", "static / fleet"):
            table.add_column(name, justify="right")
        for label, figure, show, has_ratio in _ROWS:
            ours, theirs = figure(fleet), figure(static)
            ratio = _ratio(theirs, ours) if has_ratio else None
            table.add_row(
                label,
                _shown(ours, show),
                _shown(theirs, show),
                "" if ratio is None else f"{ratio:.2f}x",
            )
        return table


_Figure = Callable[[StepFigures], float | None]

#: Label, figure, format, and whether a ratio says anything.
_ROWS: tuple[tuple[str, _Figure, str, bool], ...] = (
    ("actions", lambda f: f.actions, ".0f", False),
    ("reward, undamaged samples", lambda f: f.undamaged_reward_mean, ".3f", False),
    ("reward, damaged samples", lambda f: f.damaged_reward_mean, ".3f", False),
    ("endless loops stopped", lambda f: f.true_timeouts, ".0f", False),
    ("false timeouts", lambda f: f.false_timeouts, ".0f", False),
    ("infrastructure errors", lambda f: f.infrastructure_errors, ".0f", False),
    ("ACT mean, s", lambda f: f.act_mean_s, ".2f", True),
    ("ACT p50, s", lambda f: f.act_p50_s, ".2f", True),
    ("ACT p99, s", lambda f: f.act_p99_s, ".2f", True),
    ("queue wait mean, s", lambda f: f.queue_wait_mean_s, ".2f", True),
    ("step, s", lambda f: f.step_s, ".1f", True),
    ("core-seconds reserved", lambda f: f.core_s_reserved, ".1f", True),
    ("core-seconds used", lambda f: f.core_s_used, ".1f", True),
    ("tools' share of a trajectory", lambda f: f.busy_share, ".1%", False),
)


def _faults(figures: StepFigures, loops: int) -> list[str]:
    faults = []
    # A mean over nothing is no fault: the missing rewards are.
    if figures.undamaged_reward_mean not in (1.0, None):
        faults.append(
            f"undamaged samples got a mean reward of {figures.undamaged_reward_mean:.4f}, not 1."
        )
    if figures.damaged_reward_mean not in (0.0, None):
        faults.append(
            f"damaged samples got a mean reward of {figures.damaged_reward_mean:.4f}, not 0."
        )
    if figures.rewarded != figures.samples:
        faults.append(f"{figures.samples - figures.rewarded} samples got no reward.")
    if figures.false_timeouts:
        faults.append(f"{figures.false_timeouts} actions timed out that hold no endless loop.")
    if figures.true_timeouts != loops:
        faults.append(f"{figures.true_timeouts} of {loops} endless loops timed out.")
    if figures.infrastructure_errors:
        faults.append(
            f"the fleet failed {figures.infrastructure_errors} actions. The first: "
            f"{figures.first_infrastructure_error}"
        )
    return faults


def _ratio(static: float | None, fleet: float | None) -> float | None:
    return static / fleet if static is not None and fleet else None


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    """Leave out digits that no clock here resolves."""
    return {
        name: round(value, 6) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
