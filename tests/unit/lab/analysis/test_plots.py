# SPDX-License-Identifier: BSD-2-Clause
"""The plots: the data behind their lines, and captions that name the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
    lines = {str(line.get_label()): line for line in times.lines}
    assert list(lines) == [*VARIANTS, "bound (mean)", "alone (mean)"]
    own = run.iterations[run.iterations["variant"] == "reno"]
    median = (own["end_s"] - own["start_s"]).groupby(own["iteration"]).median()
    assert list(lines["reno"].get_ydata()) == pytest.approx(1e3 * median)
    assert len({(line.get_color(), line.get_linestyle()) for line in times.lines}) == 6
    assert {*rtt.lines[0].get_ydata(), *retransmits.lines[0].get_ydata()} == {0.9, 2.0}


def test_lines_of_many_variants_look_different(run: Run) -> None:
    one = run.iterations[run.iterations["variant"] == "mltcp"]
    many = pd.concat(
        [one.assign(variant=f"{cc}-{n}") for cc in ("cubic", "mltcp") for n in range(8)]
    )
    described = {name: {"cc": name.split("-")[0]} for name in many["variant"]}
    experiment_ = replace(run.experiment, variants=described)
    figure, _ = drawn(replace(run, iterations=many, experiment=experiment_), "iterations")
    lines = figure.axes[0].lines
    assert len({(line.get_color(), str(line._dash_pattern)) for line in lines}) == len(lines) == 16


def test_runs_without_a_trace_have_no_rtt_panel(run: Run) -> None:
    untraced = run.iterations.assign(rtt_us=float("nan"), retransmits=float("nan"))
    figure, caption = drawn(replace(run, iterations=untraced), "iterations")
    assert len(figure.axes) == 1
    assert "RTT" not in caption


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


def test_window_plot_names_the_variants_left_out(run: Run) -> None:
    figure, caption = drawn(run, "windows")
    assert [part.get_suptitle() for part in figure.subfigs] == ["cubic", "mltcp"]
    assert caption.endswith("and so are the variants: reno, other.")
    two = replace(run, samples=run.samples[run.samples["variant"].isin(["reno", "other"])])
    assert drawn(two, "windows")[1].endswith("and so are the variants: cubic, mltcp.")


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


def test_plots_that_cannot_be_drawn_are_named(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text("name: nothing\n")
    plots, missing = draw_plots(load_run(tmp_path), Reference())
    assert plots == []
    assert [each.split("”")[0] for each in missing] == [
        f"No plot “{title}" for title, _ in PLOTS.values()
    ]
