# SPDX-License-Identifier: BSD-2-Clause
"""Rows of the tables from the emulators' documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.lab.experiments.reading import find_experiment, load_experiment
from mltcp_tools.lab.experiments.tasks import tasks_of
from mltcp_tools.lab.runs.recorder import Tables


def sample(iteration: int, flow: int, rtt_us: int, retransmits: int) -> dict[str, Any]:
    counters = {"cwnd": 10, "ssthresh": 10, "bytes_acked": 0}
    key = {"iteration": iteration, "flow": flow, "time": float(iteration)}
    return key | counters | {"rtt_us": rtt_us, "retransmits": retransmits}


def test_iterations_have_their_rtt_and_retransmissions(tmp_path: Path) -> None:
    experiment = load_experiment(find_experiment("four-jobs"))
    ((task, *_), *_) = tasks_of(experiment, experiment.variants[0], 1)
    iterations = [
        {"iteration": n, "start": n - 1, "end": n, "compute": 0.5, "bytes": 1, "bursts": []}
        for n in range(1, 5)
    ]
    samples = [
        *(sample(1, 0, 100, 2), sample(1, 1, 300, 0), sample(1, 0, 200, 5)),
        *(sample(2, 1, 500, 1), sample(2, 0, 700, 5), sample(4, 0, 900, 6)),
    ]
    tables = Tables()
    tables.add_job("cubic", 1, 0.0, task, {"iterations": iterations, "samples": samples})
    tables.add_job("cubic", 2, 0.0, task, {"iterations": iterations, "samples": []})
    tables.write(tmp_path)
    first, second = (
        rows for _, rows in pd.read_csv(tmp_path / "iterations.csv").groupby("repetition")
    )
    # Counters run on from one iteration to the next, for each flow by itself.
    assert first["retransmits"].fillna(-1).tolist() == [5, 1, -1, 1]
    assert first["rtt_us"].fillna(-1).tolist() == [200, 600, -1, 900]
    assert second["rtt_us"].isna().all()
