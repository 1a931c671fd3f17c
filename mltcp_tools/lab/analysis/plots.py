# SPDX-License-Identifier: BSD-2-Clause
"""The plots of a run, as PNG images. Every variant keeps its colour in all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mltcp_tools.base.figures import COLOURS, INK, dress, png
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.analysis.metrics import iteration_times
from mltcp_tools.lab.analysis.reference import Reference
from mltcp_tools.lab.runs.described import ALONE
from mltcp_tools.lab.runs.run import Run

# Okabe and Ito's colours, told apart by colour-blind eyes too; MLTCP variants take the warm ones.
_MLTCP = ("#d55e00", "#cc79a7", "#b8860b", "#8b1a1a")
_OTHERS = ("#0072b2", "#009e73", "#56b4e9", "#6a51a3", "#7f7f7f")
_SHOWN_ITERATIONS = 6
_TITLES = {
    "iterations": "Iteration time over the run",
    "timeline": "Bursts at the start and at the end",
    "cdf": "Distribution of iteration times",
    "windows": "Window and bytes ratio of the flows",
}
_STYLE: dict[str, dict[str, Any]] = {
    "bound": {"color": INK, "linestyle": "--", "linewidth": 1.3},
    "fair": {"color": "#888888", "linestyle": "-.", "linewidth": 1.3},
    "alone": {"color": INK, "linestyle": ":", "linewidth": 1.3},
}


class Unavailable(Exception):
    """The reason why a plot can't be drawn, as a sentence."""


def draw_plots(run: Run, reference: Reference) -> tuple[dict[str, bytes], list[str]]:
    """All plots that a run's tables allow.

    Returns PNG images by name (iterations, timeline, cdf, windows) and a sentence for each one left
    out.
    """
    makers: dict[str, Callable[[Run, Reference], Figure]] = {
        "iterations": _iterations,
        "timeline": _timeline,
        "cdf": _cdf,
        "windows": _windows,
    }
    images, missing = {}, []
    for name, make in makers.items():
        try:
            images[name] = png(make(run, reference))
        except Unavailable as reason:
            missing.append(f"No plot “{_TITLES[name]}”: {reason}")
    return images, missing


def title(name: str) -> str:
    """The heading of plot `name`."""
    return _TITLES[name]


def colours(run: Run) -> dict[str, str]:
    """Variant -> colour."""
    found: dict[str, str] = {}
    counts = {True: 0, False: 0}
    for variant in run.variant_names:
        mltcp = _is_mltcp(run, variant)
        palette = _MLTCP if mltcp else _OTHERS
        found[variant] = palette[counts[mltcp] % len(palette)]
        counts[mltcp] += 1
    return found


def _is_mltcp(run: Run, variant: str) -> bool:
    return is_mltcp(str(run.experiment.variants.get(variant, {}).get("cc", variant)))


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _iterations(run: Run, reference: Reference) -> Figure:
    if not run.variant_names:
        raise Unavailable("the table iterations has no variant.")
    variants = run.variant_names
    columns = min(2, len(variants))
    rows = -(-len(variants) // columns)
    figure = _figure(4.6 * columns, 2.2 * rows + 0.5)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    colour = colours(run)
    tops = []
    for axes, variant in zip(grid.flat, variants, strict=False):
        table = run.iterations[run.iterations["variant"] == variant]
        times = iteration_times(table).groupby(table["iteration"])
        middle = times.median()
        low, high = times.quantile(0.1), times.quantile(0.9)
        axes.fill_between(middle.index, low, high, color=colour[variant], alpha=0.22, linewidth=0)
        axes.plot(middle.index, middle, color=colour[variant], linewidth=1.2)
        tops.append(float(high.quantile(0.98)))
        for name in ("bound", "alone"):
            mean = _schedule_mean(reference, name)
            if mean is not None:
                axes.axhline(mean, label=f"{name} {mean * 1e3:.0f} ms", **_STYLE[name])
                tops.append(mean)
        axes.set_title(variant, fontsize=9, loc="left", color=colour[variant], fontweight="bold")
        dress(axes)
    for axes in list(grid.flat)[len(variants) :]:
        axes.set_visible(False)
    first = grid[0, 0]
    bottom = first.get_ylim()[0]
    first.set_ylim(bottom, max(tops) + 0.12 * (max(tops) - bottom))
    first.set_xlim(1, max(2, int(run.iterations["iteration"].max())))
    first.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.supxlabel("iteration", fontsize=9)
    figure.supylabel("iteration time (s)", fontsize=9)
    handles, labels = first.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="outside upper right", ncols=2, fontsize=8, frameon=False
        )
    return figure


def _schedule_mean(reference: Reference, name: str) -> float | None:
    for schedule, table in reference.iterations.items():
        if schedule == name:
            return float(iteration_times(table).mean())
    return None


def _timeline(run: Run, reference: Reference) -> Figure:
    bursts = run.bursts[run.bursts["variant"] != ALONE]
    variants = [variant for variant in run.variant_names if variant in set(bursts["variant"])]
    if not variants:
        raise Unavailable("the table bursts is missing or has no variant.")
    jobs = [job for job in run.job_names if job in set(bursts["job"])]
    height = len(variants) * (0.35 + 0.2 * len(jobs)) + 0.7
    figure = _figure(9.2, height)
    grid = figure.subplots(len(variants), 2, squeeze=False)
    colour = colours(run)
    for row, variant in zip(grid, variants, strict=True):
        rows = bursts[bursts["variant"] == variant]
        rows = rows[rows["repetition"] == rows["repetition"].min()]
        for axes, (left, right), when in zip(
            row, _windows_of(rows), ("first", "last"), strict=True
        ):
            seen = rows[(rows["end_s"] > left) & (rows["start_s"] < right)]
            for index, job in enumerate(jobs):
                own = seen[seen["job"] == job]
                spans = list(zip(own["start_s"], own["end_s"] - own["start_s"], strict=True))
                axes.broken_barh(spans, (index - 0.4, 0.8), facecolors=colour[variant])
            axes.set_xlim(left, right)
            axes.set_ylim(len(jobs) - 0.4, -0.6)
            axes.set_yticks(range(len(jobs)), jobs if when == "first" else [""] * len(jobs))
            dress(axes)
            axes.grid(visible=False, axis="y")
            axes.set_title(f"{variant}, {when} iterations", fontsize=9, loc="left")
    for axes in grid[-1]:
        axes.set_xlabel("time since the start of the variant (s)", fontsize=9)
    return figure


def _windows_of(bursts: pd.DataFrame) -> list[tuple[float, float]]:
    """The spans of time that show the first and the last iterations, seconds."""
    last_iteration = int(bursts["iteration"].max())
    early = bursts[bursts["iteration"] <= min(_SHOWN_ITERATIONS, last_iteration)]
    first_end = float(early.groupby("job")["end_s"].max().median())
    left = max(0.0, float(bursts["start_s"].min()) - 0.05 * first_end)
    span = first_end - left
    # All jobs are still at work until the first of them has finished.
    finish = float(bursts.groupby("job")["end_s"].max().min())
    return [(left, left + span), (max(left, finish - span), max(left + span, finish))]


def _cdf(run: Run, reference: Reference) -> Figure:
    if not run.variant_names:
        raise Unavailable("the table iterations has no variant.")
    figure = _figure(6.4, 3.8)
    axes = figure.subplots()
    colour = colours(run)
    for variant in run.variant_names:
        table = run.iterations[run.iterations["variant"] == variant]
        axes.plot(
            *_steps(iteration_times(table)), color=colour[variant], linewidth=1.6, label=variant
        )
    for name, table in reference.iterations.items():
        if name != "alone":
            axes.plot(*_steps(iteration_times(table)), label=f"{name} (computed)", **_STYLE[name])
    times = iteration_times(run.iterations[run.iterations["variant"] != ALONE])
    slowest = float(times.quantile(0.998))
    axes.set_xlim(float(times.min()) * 0.98, slowest * 1.03)
    axes.set_ylim(0, 1.01)
    axes.set_xlabel("iteration time (s)", fontsize=9)
    axes.set_ylabel("share of iterations", fontsize=9)
    dress(axes)
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def _steps(values: pd.Series[float]) -> tuple[Any, Any]:
    ordered = np.sort(values.to_numpy(dtype=float))
    return ordered, np.arange(1, ordered.size + 1) / ordered.size


def _traced_variants(run: Run, samples: pd.DataFrame) -> list[str]:
    """The baseline and the first MLTCP variant where traced, else the first two variants that
    were."""
    traced = [variant for variant in run.variant_names if variant in set(samples["variant"])]
    mltcp = [variant for variant in traced if _is_mltcp(run, variant)][:1]
    shown = [variant for variant in traced if variant == run.baseline or variant in mltcp]
    return shown if len(shown) == 2 else traced[:2]


def _views(samples: pd.DataFrame, period_s: float) -> list[tuple[str, pd.DataFrame]]:
    """Early and late samples of one variant and repetition: the bursts of about one period each.

    A period is chosen in which as many jobs as possible were traced, since jobs that drift apart
    reach the same iteration at different times.
    """
    # The first iteration is slow start of a new connection and says little of what follows.
    rows = samples[samples["iteration"] > 1] if samples["iteration"].max() > 1 else samples
    middle = (rows["iteration"].min() + rows["iteration"].max()) / 2
    early, late = rows[rows["iteration"] <= middle], rows[rows["iteration"] > middle]
    views = []
    for when, part in (("early", early), ("late", late)):
        if part.empty:
            continue
        starts = part.groupby(["job", "flow", "iteration"], as_index=False)["time_s"].min()
        begin = starts["time_s"].to_numpy()
        jobs = [
            starts.loc[(begin >= at) & (begin < at + period_s), "job"].nunique() for at in begin
        ]
        best = [at for at, count in zip(begin, jobs, strict=True) if count == max(jobs)]
        at = min(best) if when == "early" else max(best)
        shown = starts[(begin >= at) & (begin < at + period_s)][["job", "flow", "iteration"]]
        views.append((when, part.merge(shown, on=["job", "flow", "iteration"])))
    return views


def _windows(run: Run, reference: Reference) -> Figure:
    # Jobs without iterations are in no other plot either.
    samples = run.samples[
        (run.samples["variant"] != ALONE) & run.samples["job"].isin(run.job_names)
    ]
    if samples.empty:
        raise Unavailable("the table samples is missing or empty (nothing was traced).")
    variants = _traced_variants(run, samples)
    if not variants:
        raise Unavailable("the traced variants have no iterations.")
    jobs = [job for job in run.job_names if job in set(samples["job"])]
    colour = {job: COLOURS[i % len(COLOURS)] for i, job in enumerate(jobs)}
    figure = _figure(9.2, 3.4 * len(variants) + 0.4)
    parts = figure.subfigures(len(variants), 1, squeeze=False)[:, 0]
    for part, variant in zip(parts, variants, strict=True):
        rows = samples[samples["variant"] == variant]
        rows = rows[rows["repetition"] == rows["repetition"].min()]
        table = run.iterations[run.iterations["variant"] == variant]
        views = _views(rows, float(iteration_times(table).median()))
        grid = part.subplots(2, len(views), squeeze=False, sharex="col", sharey="row")
        part.suptitle(variant, fontsize=10, x=0.01, ha="left", fontweight="bold")
        for column, (when, seen) in enumerate(views):
            start = float(seen["time_s"].min())
            for (job, _, _), own in seen.groupby(["job", "flow", "iteration"]):
                own = own.sort_values("time_s")
                at = (own["time_s"] - start) * 1e3
                options: Mapping[str, Any] = {"color": colour[str(job)], "linewidth": 1.2}
                grid[0, column].plot(at, own["cwnd"], **options)
                grid[1, column].plot(at, own["bytes_acked"] / own["total_bytes"], **options)
            grid[0, column].set_title(f"{when}, from {start:.1f} s on", fontsize=9, loc="left")
            grid[1, column].set_xlabel("time since then (ms)", fontsize=9)
            for axes in grid[:, column]:
                dress(axes)
        grid[0, 0].set_ylabel("window (segments)", fontsize=9)
        grid[1, 0].set_ylabel("bytes ratio", fontsize=9)
        grid[1, 0].set_ylim(0, 1.05)
    legend = [parts[0].axes[0].plot([], [], color=colour[job], label=job)[0] for job in jobs]
    figure.legend(
        handles=legend,
        loc="outside lower center",
        ncols=min(8, len(jobs)),
        fontsize=8,
        frameon=False,
    )
    return figure
