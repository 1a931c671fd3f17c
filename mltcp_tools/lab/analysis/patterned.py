# SPDX-License-Identifier: BSD-2-Clause
"""The schedules of a run over a fabric, whose jobs have ranks (simulator/rank_schedules.py).

They are computed from the run folder's experiment, which determines every compute time, start and
path.
"""

from __future__ import annotations

import dataclasses

import pandas as pd

from mltcp_tools.lab.analysis.isolated import Isolated, isolated_jobs, payload_share, setting
from mltcp_tools.lab.experiments.reading import load_experiment
from mltcp_tools.lab.runs.run import Run
from mltcp_tools.lab.simulator.programs import ranked_jobs
from mltcp_tools.lab.simulator.rank_schedules import simulate_ranks
from mltcp_tools.lab.simulator.schedules import SCHEDULES, Schedule


def fabric_schedules(run: Run) -> dict[Schedule, pd.DataFrame]:
    """Iterations of every repetition that ran, by schedule."""
    experiment = load_experiment(run.path / "experiment.yaml")
    tables: dict[Schedule, pd.DataFrame] = {}
    for name in SCHEDULES:
        parts = []
        for repetition in sorted(set(run.iterations["repetition"])):
            jobs, rates = ranked_jobs(
                experiment, int(repetition), payload_share(run), setting(run, "rtt_s", 0.0)
            )
            parts.append(simulate_ranks(name, jobs, rates).assign(repetition=int(repetition)))
        tables[name] = pd.concat(parts, ignore_index=True)
    return tables


def isolated_of(run: Run, alone: pd.DataFrame) -> dict[str, Isolated]:
    """Return each job's need alone: its mean communication time under the schedule `alone`."""
    measured = isolated_jobs(run)
    needs_s = alone.groupby("job")["comm_s"].mean()
    nothing = Isolated(0.0, 0.0, "computed", None, None, None, None, 1)
    return {
        str(job): dataclasses.replace(
            measured.get(str(job), nothing), needs_s=float(value), latency_s=0.0, how="computed"
        )
        for job, value in needs_s.items()
    }


def bursts_of(iterations: pd.DataFrame) -> pd.DataFrame:
    """Their bursts, one per iteration."""
    return iterations.assign(burst=1, start_s=iterations["end_s"] - iterations["comm_s"])[
        ["job", "iteration", "burst", "start_s", "end_s", "repetition"]
    ]
