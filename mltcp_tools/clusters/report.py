# SPDX-License-Identifier: BSD-2-Clause
"""Run folders of cluster runs: a table of the jobs, and the runs' summaries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mltcp_tools.clusters.outcome import Outcome


def write_report(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Write jobs.csv and summary.json."""
    jobs_table(outcomes).to_csv(folder / "jobs.csv", index=False)
    document = {"schema": "mltcp-cluster/1", "runs": [each.summary() for each in outcomes]}
    (folder / "summary.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


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
