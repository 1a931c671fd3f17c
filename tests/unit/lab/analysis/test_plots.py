# SPDX-License-Identifier: BSD-2-Clause
"""The plots: the data behind their lines, and captions that name the rest."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from matplotlib.figure import Figure
from support.run_folders import experiment, make_run

from mltcp_tools.lab.analysis import load_run
from mltcp_tools.lab.analysis.plots import PLOTS, draw_plots, overlaps
from mltcp_tools.lab.analysis.reference import Reference, make_reference
from mltcp_tools.lab.runs.run import Run

VARIANTS = {"cubic": "cubic", "reno": "reno", "mltcp": "mltcp", "other": "mltcp"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return load_run(make_run(folder, experiment(variants=VARIANTS)))


def drawn(run: Run, name: str, reference: Reference | None = None) -> tuple[Figure, str]:
    return PLOTS[name][1](run, reference or Reference())


def test_medians_of_all_variants_share_one_axes(run: Run) -> None:
    figure, _ = drawn(run, "iterations", make_reference(run))
    times, rtt, retransmits = figure.axes
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["iteration time (ms)", "RTT (ms)", "retransmitted\nsegments"]
    lines = {str(line.get_label()): line for line in times.lines}
    assert list(lines) == [*VARIANTS, "bound (mean)", "alone (mean)"]
    own = run.iterations[run.iterations["variant"] == "reno"]
    median = (own["end_s"] - own["start_s"]).groupby(own["iteration"]).median()
    assert list(lines["reno"].get_ydata()) == pytest.approx(1e3 * median)
    assert len({(line.get_color(), line.get_linestyle()) for line in times.lines}) == 6
    assert {*rtt.lines[0].get_ydata(), *retransmits.lines[0].get_ydata()} == {0.9, 2.0}


def test_timeline_panels_span_the_same_time(run: Run) -> None:
    slow = run.bursts["variant"] == "reno"
    bursts = run.bursts.copy()
    bursts.loc[slow, ["start_s", "end_s"]] *= 3
    figure, _ = drawn(replace(run, bursts=bursts), "timeline")
    assert len(figure.axes) == 2 * len(VARIANTS)
    (span,) = {axes.get_xlim() for axes in figure.axes}
    first = bursts[slow & (bursts["iteration"] <= 6) & (bursts["repetition"] == 1)]
    ends = first.groupby("job")["end_s"].max()
    assert span == (0, pytest.approx(ends.median() - first["start_s"].min()))


@pytest.mark.parametrize(
    ("bursts", "spans"),
    [
        ([(0, 2), (1, 3)], [(1, 2)]),
        ([(0, 4), (1, 2), (1, 3)], [(1, 3)]),
        ([(0, 1), (1, 2)], []),
        ([(0, 2), (0, 2), (5, 5)], [(0, 2)]),
        ([], []),
    ],
)
def test_overlap_is_shaded_where_two_bursts_meet(
    bursts: list[tuple[float, float]], spans: list[tuple[float, float]]
) -> None:
    assert list(overlaps(pd.DataFrame(bursts, columns=["start_s", "end_s"]))) == spans


def test_retransmissions_are_marked_where_they_are_counted(run: Run) -> None:
    samples = run.samples.copy()
    one = samples[(samples["job"] == "job-1") & (samples["variant"] == "cubic")]
    samples.loc[one.index[5], "retransmits"] = 3
    samples.loc[one.index[6:20], "retransmits"] = 4
    figure, _ = drawn(replace(run, samples=samples), "windows")
    crosses = [line for line in figure.subfigs[0].axes[0].lines if line.get_marker() == "x"]
    marked = [at for line in crosses for at in line.get_ydata()]
    assert marked == [one["cwnd"].iloc[5], one["cwnd"].iloc[6]]


@pytest.mark.parametrize("name", [r"$\bad{$", "$a", "n" * 400, "a\nb"])
def test_names_from_damaged_tables_are_drawn_as_text(run: Run, name: str) -> None:
    names = {"mltcp": name, "job-1": name}
    strange = replace(
        run,
        iterations=run.iterations.replace(names),
        bursts=run.bursts.replace(names),
        samples=run.samples.replace(names),
    )
    plots, missing = draw_plots(strange, make_reference(run))
    assert (len(plots), missing) == (4, [])
