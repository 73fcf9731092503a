"""The picture of a demo run: cores, waiting actions and finished trajectories over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tangram_workers.bench.demo.figures import step_figures
from tangram_workers.bench.demo.records import Policy, StepRecord
from tangram_workers.bench.demo.report import DemoReport
from tangram_workers.bench.demo.timeline import make_timeline
from tangram_workers.domain.errors import InputError, MissingPartError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".png", ".svg", ".pdf")
#: In the longer of the two steps.
_INTERVALS = 240
#: Part of the width that a remark needs.
_ROOM_FOR_WORDS = 0.25
#: Colours that stay apart for colour-blind eyes, and in grey.
_QUIET = "#7a8a8c"
_BUSY, _RESERVED, _WAITING, _ENDED = "#2a7f8e", "#d9e6e8", "#c8553d", "#3d3d3d"
_TITLES = {
    Policy.FLEET: "fleet: an action holds a core while it runs",
    Policy.STATIC: "static: a trajectory holds a core for its whole life",
}


def check_plot_path(path: Path) -> None:
    """Refuse a picture that could not be written later; call it before the measurement.

    Raises:
        InputError: If the file's ending or folder will not do.
        MissingPartError: If matplotlib is not installed.
    """
    if path.suffix.lower() not in ENDINGS:
        raise InputError(
            f"plot={str(path)!r} is not valid: give a file that ends with {', '.join(ENDINGS)}."
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"plot={str(path)!r} is not valid: its folder does not exist; make it.")
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingPartError(
            "A plot needs matplotlib, which is not installed. "
            "Install it: `pip install 'tangram-workers[plot]'`."
        ) from None
    # A terminal without a screen is the usual place for this.
    mpl.use("Agg")


def write_plot(report: DemoReport, path: Path) -> None:
    """Write the picture; the file's ending chooses its format.

    Raises:
        InputError: If the file's ending will not do, or the file cannot be written.
        MissingPartError: If matplotlib is not installed.
    """
    check_plot_path(path)
    from matplotlib.figure import Figure

    until_s = 1.02 * max(report.fleet.duration_s, report.static.duration_s)
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, sharey=True)
    counters = [upper.twinx(), lower.twinx()]
    counters[1].sharey(counters[0])
    for cores, counter, step in zip(
        (upper, lower), counters, (report.fleet, report.static), strict=True
    ):
        _draw(cores, counter, step, until_s)
    lower.set_xlabel("seconds since the step began")
    lower.set_xlim(0, until_s)
    upper.set_ylim(0, report.fleet.cores * 1.12)
    counters[0].set_ylim(0, report.fleet.samples * 1.12)
    handles, labels = lower.get_legend_handles_labels()
    more_handles, more_labels = counters[1].get_legend_handles_labels()
    figure.legend(
        [*handles, *more_handles],
        [*labels, *more_labels],
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    figure.suptitle(_headline(report), fontsize=13, fontweight="bold")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"plot={str(path)!r} cannot be written: {error}.") from error


def _draw(cores: Axes, counter: Axes, step: StepRecord, until_s: float) -> None:
    """Draw one policy: cores on the left axis, counts on the right one."""
    from matplotlib.patheffects import withStroke

    # Nothing is drawn beyond the step's end; intervals are of one width in both panels.
    intervals = max(1, round(_INTERVALS * step.duration_s / until_s))
    timeline = make_timeline(step, until_s=step.duration_s, intervals=intervals)
    if step.policy is Policy.STATIC:
        cores.fill_between(
            (0, step.duration_s), step.cores, color=_RESERVED, lw=0, label="cores reserved, idle"
        )
    cores.stairs(
        timeline.busy_cores, timeline.edges_s, fill=True, color=_BUSY, label="cores running actions"
    )
    counter.stairs(
        timeline.waiting,
        timeline.edges_s,
        baseline=None,
        color=_WAITING,
        lw=1.8,
        label="actions waiting",
    )
    counter.plot(
        timeline.edges_s, timeline.ended, color=_ENDED, lw=1.8, ls="--", label="trajectories done"
    )
    for line in (*counter.lines, *counter.patches):
        # A light rim keeps the lines apart from the areas below them.
        line.set_path_effects([withStroke(linewidth=3.6, foreground="white")])
    for axes in (cores, counter):
        axes.axvline(step.duration_s, color=_ENDED, lw=0.8)
        axes.spines["top"].set_visible(False)
    if until_s - step.duration_s > _ROOM_FOR_WORDS * until_s:
        cores.text(
            (step.duration_s + until_s) / 2,
            step.cores / 2,
            "step done, cores free",
            ha="center",
            va="center",
            color=_QUIET,
            fontsize=12,
        )
    figures = step_figures(step)
    cores.set_title(
        f"{_TITLES[step.policy]}   (step {step.duration_s:.1f} s, "
        f"mean ACT {figures.act_mean_s or 0.0:.2f} s, "
        f"{step.reserved_core_s:.0f} core-seconds reserved)",
        loc="left",
        fontsize=10.5,
    )
    cores.set_ylabel("cores")
    cores.set_yticks(range(step.cores + 1) if step.cores <= 8 else [0, step.cores])
    counter.set_ylabel("actions, trajectories")


def _headline(report: DemoReport) -> str:
    ratio = report.to_json()["ratio"]
    gains = [
        f"{name} {ratio[key]:.1f}x"
        for name, key in (("step", "step"), ("mean ACT", "act"))
        if ratio[key] is not None
    ]
    return f"One RL step of {report.fleet.samples} trajectories, static / fleet: {', '.join(gains)}"
