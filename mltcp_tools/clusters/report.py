"""Run folders of cluster runs: the workload, its host, every job, and plots."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mltcp_tools.base.figures import png, subplots
from mltcp_tools.base.pages import embedded, templates
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.text import render_summaries

_TEMPLATES = templates(__package__)
_CAPTIONS = {
    "completion": "Further left is faster: share of jobs that took no longer, from arrival to end.",
    "timeline": "GPUs that jobs under way asked for, by model, in the first draw. The line is what"
    " there is; above it jobs are preempted.",
    "links": "Share of its rate that each link carried in the first draw; those that carried most.",
}
_LINKS = 40
"""The links shown in a heat map: those that carried most of their rate."""


def write_report(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Write jobs.csv, summary.json, plots and report.html, which names the host in
    the folder's environment.json."""
    table = jobs_table(outcomes)
    table.to_csv(folder / "jobs.csv", index=False)
    summaries = [outcome.summary() for outcome in outcomes]
    document = {"schema": "mltcp-cluster/1", "runs": summaries}
    (folder / "summary.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    images = {"completion": _completion(outcomes)}
    for outcome in (each for each in outcomes if each.seed == outcomes[0].seed):
        name = f"{outcome.policy}-{outcome.treatment}"
        images[f"timeline-{name}"] = _timeline(outcome)
        images[f"links-{name}"] = _links(outcome)
    for name, image in images.items():
        (folder / f"{name}.png").write_bytes(image)
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    page = _page(environment, summaries, images)
    (folder / "report.html").write_text(page, encoding="utf-8")


def jobs_table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """A row per job of each run; times in seconds since the start."""
    rows = [
        {"policy": outcome.policy, "treatment": outcome.treatment, "seed": outcome.seed}
        | vars(job)
        | {"completion_s": job.completion_s, "queueing_s": job.queueing_s}
        for outcome in outcomes
        for job in outcome.jobs
    ]
    return pd.DataFrame(rows)


def _page(
    environment: Mapping[str, Any],
    summaries: Sequence[Mapping[str, Any]],
    images: Mapping[str, bytes],
) -> str:
    """One file that needs nothing else, as reports of the testbed."""
    return _TEMPLATES.get_template("report.html.j2").render(
        environment=environment,
        table=render_summaries(summaries),
        figures=[
            (name, _CAPTIONS[name.partition("-")[0]], embedded(image))
            for name, image in images.items()
        ],
    )


def _completion(outcomes: Sequence[Outcome]) -> bytes:
    figure, axis = subplots(figsize=(6, 3.4))
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        label = f"{outcome.policy}, {outcome.treatment}"
        found.setdefault(label, []).extend(job.completion_s for job in outcome.jobs)
    for label, times in found.items():
        shares = np.arange(1, len(times) + 1) / len(times)
        axis.step(sorted(times), shares, where="post", label=label)
    axis.set_xscale("log")
    axis.set_xlabel("completion time, s")
    axis.set_ylabel("share of jobs")
    axis.legend(fontsize=8)
    return png(figure)


def _timeline(outcome: Outcome) -> bytes:
    """GPUs that jobs under way asked for over time, by model."""
    ends = sorted({t for job in outcome.jobs for t in (job.start_s, job.end_s)})
    models = sorted({job.model for job in outcome.jobs})
    held = {model: np.zeros(len(ends)) for model in models}
    for job in outcome.jobs:
        first, last = np.searchsorted(ends, [job.start_s, job.end_s])
        held[job.model][first:last] += job.gpus
    figure, axis = subplots(figsize=(8, 3.2))
    hours = np.array(ends) / 3600
    axis.stackplot(hours, *held.values(), labels=models, step="post")
    axis.axhline(outcome.total_gpus, color="black", linewidth=0.5)
    axis.set_xlabel("hours")
    axis.set_ylabel("GPUs asked for by jobs under way")
    axis.legend(fontsize=7, ncols=4)
    return png(figure)


def _links(outcome: Outcome) -> bytes:
    figure, axis = subplots(figsize=(8, 4))
    if outcome.links is not None:
        used = outcome.links.utilisation()
        bins = max(1, int(np.ceil(outcome.makespan_s / outcome.links.bin_s)))
        order = np.argsort(-used.sum(axis=1), kind="stable")[:_LINKS]
        image = axis.imshow(
            used[order, :bins],
            aspect="auto",
            cmap="magma",
            vmin=0,
            vmax=1,
            extent=(0, bins * outcome.links.bin_s / 3600, len(order), 0),
        )
        names = outcome.links.names
        axis.set_yticks(np.arange(len(order)) + 0.5, [names[n] for n in order], fontsize=5)
        figure.colorbar(image, ax=axis, label="share of the rate")
    axis.set_xlabel("hours")
    return png(figure)
