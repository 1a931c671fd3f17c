# SPDX-License-Identifier: BSD-2-Clause
"""The plots of a run, as PNG images. Every variant keeps its colour in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from mltcp_tools.base.cells import clip
from mltcp_tools.base.figures import COLOURS, INK, dress, png
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.analysis.metrics import iteration_times
from mltcp_tools.lab.analysis.reference import Reference
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.run import Run

# Okabe and Ito's colours, which colour-blind people can tell apart; MLTCP variants take the warm
# ones. From the third of each kind on, a pattern of dashes tells lines apart as well.
_MLTCP = ("#d55e00", "#cc79a7", "#b8860b", "#8b1a1a")
_OTHERS = ("#0072b2", "#009e73", "#56b4e9", "#6a51a3", "#7f7f7f")
_DASHES = ("-", (0, (6, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_OVERLAP = "#dddddd"
_NAME = 24
"""Characters of a name in a plot."""
_SHOWN_ITERATIONS = 6
_SCHEDULES: dict[str, dict[str, Any]] = {
    "bound": {"color": INK, "linestyle": "--", "linewidth": 1.1},
    "fair": {"color": "#888888", "linestyle": "-.", "linewidth": 1.1},
    "alone": {"color": INK, "linestyle": ":", "linewidth": 1.1},
}


@dataclass(frozen=True)
class Plot:
    """A plot as PNG, and the texts above and below it."""

    name: str
    title: str
    caption: str
    png: bytes


class Unavailable(Exception):
    """The reason why a plot can't be drawn, as a sentence."""


def draw_plots(run: Run, reference: Reference) -> tuple[list[Plot], list[str]]:
    """All plots that a run's tables allow, and a sentence for each one that is left out."""
    plots, missing = [], []
    for name, (title, draw) in PLOTS.items():
        try:
            figure, caption = draw(run, reference)
        except Unavailable as reason:
            missing.append(f"No plot “{title}”: {reason}")
        else:
            plots.append(Plot(name, title, caption, png(figure)))
    return plots, missing


def _styles(run: Run) -> dict[str, dict[str, Any]]:
    """Variant -> colour and dashes of its lines."""
    found: dict[str, dict[str, Any]] = {}
    counts = {True: 0, False: 0}
    for variant in run.variant_names:
        mltcp = _is_mltcp(run, variant)
        palette, place = (_MLTCP if mltcp else _OTHERS), counts[mltcp]
        found[variant] = {
            "color": palette[place % len(palette)],
            "linestyle": _DASHES[place // 2 % len(_DASHES)],
        }
        counts[mltcp] += 1
    return found


def _is_mltcp(run: Run, variant: str) -> bool:
    return is_mltcp(run.experiment.variants[variant].cc)


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _variants(run: Run) -> dict[str, pd.DataFrame]:
    """Variant -> its iterations, with their durations and RTTs in milliseconds."""
    if not run.variant_names:
        raise Unavailable("the table iterations has no variant.")
    table = run.iterations.assign(
        ms=1e3 * iteration_times(run.iterations), rtt_ms=run.iterations["rtt_us"] / 1e3
    )
    return {variant: table[table["variant"] == variant] for variant in run.variant_names}


def _over_the_run(run: Run, reference: Reference) -> tuple[Figure, str]:
    variants, styles = _variants(run), _styles(run)
    traced = run.iterations["rtt_us"].notna() & (run.iterations["variant"] != ALONE)
    panels = {"ms": "iteration time (ms)"}
    if traced.any():
        panels |= {"rtt_ms": "RTT (ms)", "retransmits": "retransmitted\nsegments"}
    figure = _figure(9.2, 3.4 + 1.7 * (len(panels) - 1))
    heights = [2, *[1] * (len(panels) - 1)]
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (column, unit) in zip(grid, panels.items(), strict=True):
        for variant, table in variants.items():
            middle = table.groupby("iteration")[column].median().dropna()
            name = clip(variant, _NAME)
            axes.plot(middle.index, middle, linewidth=1.3, label=name, **styles[variant])
        axes.set_ylabel(unit, fontsize=9)
        dress(axes)
    for name in ("bound", "alone"):
        if name in reference.iterations:
            mean = 1e3 * float(iteration_times(reference.iterations[name]).mean())
            grid[0].axhline(mean, label=f"{name} (mean)", **_SCHEDULES[name])
    for axes in grid[1:]:
        axes.set_ylim(bottom=0)
    grid[0].set_xlim(1, max(2, int(run.iterations["iteration"].max())))
    grid[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    grid[-1].set_xlabel("iteration", fontsize=9)
    _legend(figure, grid[0].get_legend_handles_labels()[0])
    caption = "Median over jobs and repetitions."
    if traced.any():
        caption += (
            " RTT and retransmissions are those of the traced repetition: the RTT is the mean while"
            " the job sends, and grows with the queue; retransmitted segments are those of one"
            " iteration."
        )
    return figure, caption


def _legend(figure: Figure, handles: Sequence[Any]) -> None:
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=min(8, len(handles)),
        fontsize=8,
        frameon=False,
    )


def _timeline(run: Run, reference: Reference) -> tuple[Figure, str]:
    bursts = run.bursts[run.bursts["variant"] != ALONE]
    rows = {
        variant: own[own["repetition"] == own["repetition"].min()]
        for variant in run.variant_names
        if len(own := bursts[bursts["variant"] == variant])
    }
    if not rows:
        raise Unavailable("the table bursts is missing or has no variant.")
    jobs = [job for job in run.job_names if job in set(bursts["job"])]
    span = max(map(_first_iterations, rows.values()))
    figure = _figure(9.2, len(rows) * (0.45 + 0.17 * len(jobs)) + 0.8)
    grid = figure.subplots(len(rows), 2, squeeze=False, sharex=True, sharey=True)
    styles = _styles(run)
    for line, (variant, own) in zip(grid, rows.items(), strict=True):
        begin = float(own["start_s"].min())
        # All jobs are still at work until the first of them has finished.
        finish = float(own.groupby("job")["end_s"].max().min())
        for axes, left in zip(line, (begin, max(begin, finish - span)), strict=True):
            seen = own[(own["end_s"] > left) & (own["start_s"] < left + span)]
            spans = seen.assign(start_s=seen["start_s"] - left, end_s=seen["end_s"] - left)
            for start, end in overlaps(spans):
                axes.axvspan(start, end, color=_OVERLAP, linewidth=0)
            for place, job in enumerate(jobs):
                each = spans[spans["job"] == job]
                bars = list(zip(each["start_s"], each["end_s"] - each["start_s"], strict=True))
                colour = styles[variant]["color"]
                axes.broken_barh(bars, (place - 0.35, 0.7), facecolors=colour)
            title = f"{clip(variant, _NAME)}, from {left:.1f} s"
            axes.set_title(title, fontsize=9, loc="left")
            dress(axes)
            axes.grid(visible=False)
    grid[0, 0].set_xlim(0, span)
    grid[0, 0].set_ylim(len(jobs) - 0.5, -0.5)
    grid[0, 0].set_yticks(range(len(jobs)), [clip(job, _NAME) for job in jobs])
    for axes in grid[-1]:
        axes.set_xlabel("time since then (s)", fontsize=9)
    return figure, (
        f"Left: the first {_SHOWN_ITERATIONS} iterations; right: the last ones in which all jobs"
        " run, in the first repetition. All panels span the same time. A bar is one burst; grey"
        " marks the times at which bursts of two or more jobs overlap."
    )


def _first_iterations(bursts: pd.DataFrame) -> float:
    """Seconds that the first iterations of one repetition take, the median over the jobs."""
    early = bursts[bursts["iteration"] <= _SHOWN_ITERATIONS]
    return float(early.groupby("job")["end_s"].max().median() - bursts["start_s"].min())


def overlaps(bursts: pd.DataFrame) -> Iterator[tuple[float, float]]:
    """The spans, in seconds, in which two or more of the bursts are under way."""
    changes = [(at, 1) for at in bursts["start_s"]] + [(at, -1) for at in bursts["end_s"]]
    under_way, since = 0, 0.0
    for at, step in sorted(changes):
        if under_way < 2 <= under_way + step:
            since = at
        elif under_way + step < 2 <= under_way and at > since:
            yield since, at
        under_way += step


def _cdf(run: Run, reference: Reference) -> tuple[Figure, str]:
    variants, styles = _variants(run), _styles(run)
    figure = _figure(7.2, 3.8)
    axes = figure.subplots()
    for variant, table in variants.items():
        label = clip(variant, _NAME)
        axes.plot(*_steps(table["ms"]), linewidth=1.6, label=label, **styles[variant])
    for name, table in reference.iterations.items():
        if name != "alone":
            times = 1e3 * iteration_times(table)
            axes.plot(*_steps(times), label=f"{name} (computed)", **_SCHEDULES[name])
    times = pd.concat([table["ms"] for table in variants.values()])
    axes.set_xlim(float(times.min()) * 0.98, float(times.quantile(0.998)) * 1.03)
    axes.set_ylim(0, 1.01)
    axes.set_xlabel("iteration time (ms)", fontsize=9)
    axes.set_ylabel("share of iterations", fontsize=9)
    dress(axes)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return figure, "Share of iterations that took at most so long: lines further left are faster."


def _steps(values: pd.Series[float]) -> tuple[Any, Any]:
    ordered = np.sort(values.to_numpy(dtype=float))
    return ordered, np.arange(1, ordered.size + 1) / ordered.size


def _windows(run: Run, reference: Reference) -> tuple[Figure, str]:
    # Jobs without iterations are in no other plot either.
    samples = run.samples[run.samples["job"].isin(run.job_names)]
    traced = [variant for variant in run.variant_names if variant in set(samples["variant"])]
    if not traced:
        raise Unavailable("the table samples is missing or empty (nothing was traced).")
    variants = _compared(run, traced)
    jobs = [job for job in run.job_names if job in set(samples["job"])]
    colour = {job: COLOURS[place % len(COLOURS)] for place, job in enumerate(jobs)}
    figure = _figure(9.2, 3.4 * len(variants) + 0.4)
    parts = figure.subfigures(len(variants), 1, squeeze=False)[:, 0]
    for part, variant in zip(parts, variants, strict=True):
        rows = samples[samples["variant"] == variant]
        rows = rows[rows["repetition"] == rows["repetition"].min()]
        table = run.iterations[run.iterations["variant"] == variant]
        views = _views(rows, float(iteration_times(table).median()))
        grid = part.subplots(2, len(views), squeeze=False, sharex="col", sharey="row")
        part.suptitle(variant, fontsize=10, x=0.01, ha="left", fontweight="bold")
        for column, seen in zip(grid.T, views, strict=True):
            start = float(seen["time_s"].min())
            for (job, _, _), own in seen.groupby(["job", "flow", "iteration"]):
                _draw_flow(column, own.sort_values("time_s"), start, colour[str(job)])
            column[0].set_title(f"from {start:.1f} s", fontsize=9, loc="left")
            column[1].set_xlabel("time since then (ms)", fontsize=9)
        grid[0, 0].set_ylabel("window (segments)", fontsize=9)
        grid[1, 0].set_ylabel("RTT (ms)", fontsize=9)
        grid[1, 0].set_ylim(bottom=0)
    lines = [Line2D([], [], color=colour[job], label=clip(job, _NAME)) for job in jobs]
    lines.append(Line2D([], [], label="retransmission", **_RETRANSMISSION))
    _legend(figure, lines)
    left_out = [variant for variant in run.variant_names if variant not in variants]
    return figure, (
        "One line for each burst and flow: one iteration near the start of the run, and one near"
        " its end, of the first repetition. All others are left out"
        + (f", and so are the variants: {', '.join(left_out)}." if left_out else ".")
    )


_RETRANSMISSION: dict[str, Any] = {
    "color": "#d00000",
    "marker": "x",
    "markersize": 4,
    "linestyle": "none",
}


def _draw_flow(column: Sequence[Axes], samples: pd.DataFrame, start_s: float, colour: str) -> None:
    """Draw window, retransmissions and RTT of one burst of a flow."""
    window, rtt = column
    at = (samples["time_s"] - start_s) * 1e3
    window.plot(at, samples["cwnd"], color=colour, linewidth=1.2)
    lost = samples["retransmits"].diff() > 0
    window.plot(at[lost], samples["cwnd"][lost], **_RETRANSMISSION)
    rtt.plot(at, samples["rtt_us"] / 1e3, color=colour, linewidth=1.2)
    for axes in column:
        dress(axes)


def _compared(run: Run, traced: list[str]) -> list[str]:
    """The baseline and the first MLTCP variant if both were traced, else the first two."""
    mltcp = [variant for variant in traced if _is_mltcp(run, variant)][:1]
    shown = [variant for variant in traced if variant == run.baseline or variant in mltcp]
    return shown if len(shown) == 2 else traced[:2]


def _views(samples: pd.DataFrame, period_s: float) -> list[pd.DataFrame]:
    """Early and late samples of one variant and repetition: the bursts of about one period each.

    A period is chosen in which as many jobs as possible were traced, since jobs that drift apart
    reach the same iteration at different times.
    """
    # The first iteration is slow start of a new connection and says little of what follows.
    rows = samples[samples["iteration"] > 1] if samples["iteration"].max() > 1 else samples
    middle = (rows["iteration"].min() + rows["iteration"].max()) / 2
    early, late = rows[rows["iteration"] <= middle], rows[rows["iteration"] > middle]
    views = []
    for part, choose in ((early, min), (late, max)):
        if part.empty:
            continue
        starts = part.groupby(["job", "flow", "iteration"], as_index=False)["time_s"].min()
        begin = starts["time_s"].to_numpy()
        jobs = [
            starts.loc[(begin >= at) & (begin < at + period_s), "job"].nunique() for at in begin
        ]
        at = choose(at for at, count in zip(begin, jobs, strict=True) if count == max(jobs))
        shown = starts[(begin >= at) & (begin < at + period_s)][["job", "flow", "iteration"]]
        views.append(part.merge(shown, on=["job", "flow", "iteration"]))
    return views


PLOTS: dict[str, tuple[str, Callable[[Run, Reference], tuple[Figure, str]]]] = {
    "iterations": ("Over the run", _over_the_run),
    "timeline": ("Bursts at the start and at the end", _timeline),
    "cdf": ("Distribution of iteration times", _cdf),
    "windows": ("Congestion windows and RTTs of the flows", _windows),
}
"""Name -> title, and the function that draws it and describes it."""
