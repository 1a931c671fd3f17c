# SPDX-License-Identifier: BSD-2-Clause
"""Makes run folders for the tests of the analysis: jobs under made-up congestion controls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from mltcp_tools.lab.simulator.schedules import (
    Schedule,
    ScheduledJob,
    iterations_of,
    simulate_bursts,
)

BYTES = 2_500_000
LONE_COMM_S = BYTES * (1514 / 1448) * 8 / 200e6
"""The time that the bytes take on the link of `experiment`, with all headers."""


def experiment(
    jobs: int = 4, variants: Mapping[str, str] | None = None, **changes: Any
) -> dict[str, Any]:
    """An experiment's document; `variants` maps a variant's name to its congestion control."""
    return {
        "name": "made-up",
        "description": "Jobs under made-up congestion controls",
        "link": {"rate": "200mbit", "queue": "30kB"},
        "jobs": [
            {"name": "job", "count": jobs, "bytes": "2.5MB", "compute": "340ms", "jitter": "5%"}
        ],
        "variants": {
            name: {"cc": cc}
            for name, cc in (variants or {"cubic": "cubic", "mltcp": "mltcp"}).items()
        },
        "baseline": "cubic",
        "iterations": 40,
        "repetitions": 2,
        "seed": 1,
        **changes,
    }


def simulated_tables(
    schedule: Schedule, names: list[str], iterations: int, seed: int, jitter: float = 0.05
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Iterations and bursts of equal jobs (0.34 s compute) whose variant follows a schedule."""
    rng = np.random.default_rng(seed)
    jobs = [
        ScheduledJob(
            name, 0.0, list(0.34 * (1 + jitter * rng.standard_normal(iterations))), LONE_COMM_S
        )
        for name in names
    ]
    bursts = simulate_bursts(schedule, jobs)
    return iterations_of(bursts, jobs), bursts


def make_run(folder: Path, document: dict[str, Any] | None = None, *, jitter: float = 0.05) -> Path:
    """Write a whole run folder: mltcp variants follow the bound, others share fairly, and return
    it."""
    document = document or experiment()
    names = [f"job-{i}" for i in range(1, document["jobs"][0]["count"] + 1)]
    iterations, bursts, variants, samples, events = [], [], [], [], []

    def add(variant: str, repetition: int, tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        own = {"variant": variant, "repetition": repetition, "bytes": BYTES}
        traced = {"rtt_us": 900.0, "retransmits": 2.0} if repetition == 1 else {}
        iterations.append(tables[0].assign(**own, **traced))
        first_end_s = tables[1]["end_s"] - 0.001 * tables[1]["burst"]
        bursts.append(tables[1].assign(**own, first_end_s=first_end_s))
        end_s = float(tables[0]["end_s"].max())
        variants.append(
            {
                "variant": variant,
                "repetition": repetition,
                "order": len(variants) + 1,
                "duration_s": end_s,
                "link_bytes": len(tables[0]) * BYTES,
                "link_packets": len(tables[0]) * 1700,
                "link_drops": 10,
                "link_marks": 0,
                "cpu_busy": 0.3,
            }
        )

    add("alone", 1, simulated_tables("alone", names[:1], 20, 0, jitter))
    for repetition in range(1, document["repetitions"] + 1):
        for variant, options in document["variants"].items():
            mltcp = options["cc"].startswith("mltcp")
            tables = simulated_tables(
                "bound" if mltcp else "fair", names, document["iterations"], repetition, jitter
            )
            add(variant, repetition, tables)
            for row in tables[1].itertuples():
                if mltcp:
                    events.append(_event(variant, repetition, row))
                if repetition == 1 and row.iteration in (2, document["iterations"]):
                    samples.append(_samples(variant, repetition, row))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    (folder / "environment.json").write_text(
        json.dumps({"schema": "mltcp-environment/1", "kernel": "6.18.0", "cpus": 2})
    )
    for name, table in (
        ("iterations", pd.concat(iterations)),
        ("bursts", pd.concat(bursts)),
        ("variants", pd.DataFrame(variants)),
        ("samples", pd.concat(samples)),
        ("flow_events", pd.DataFrame(events)),
    ):
        if len(table):
            table.to_csv(folder / f"{name}.csv", index=False)
    return folder


def make_recording(folder: Path, cc: str) -> Path:
    """Write the folder that `mltcp lab record` writes of four such jobs, and return it."""
    make_run(folder, experiment(variants={cc: cc}, baseline=cc))
    for name in ("iterations", "bursts"):
        table = pd.read_csv(folder / f"{name}.csv")
        table[table["variant"] != "alone"].to_csv(folder / f"{name}.csv", index=False)
    seen = {"bytes": f"{BYTES}B", "compute": "340ms", "flows": 1, "iterations": 40}
    jobs = [{"name": f"job-{number}"} | seen for number in range(1, 5)]
    document = {"name": "recorded", "recorded": True, "jobs": jobs, "variants": {cc: {"cc": cc}}}
    (folder / "experiment.yaml").write_text(yaml.safe_dump(document | {"baseline": cc}))
    return folder


def _event(variant: str, repetition: int, burst: Any) -> dict[str, Any]:
    key = {"variant": variant, "repetition": repetition, "job": burst.job, "flow": 0}
    times = {"first_ack_s": burst.start_s, "last_ack_s": burst.end_s}
    seen = {"bytes": BYTES, "retransmits": 2, "srtt_us": 900, "cwnd": 20, "ratio": 1.0}
    return key | {"iteration": burst.iteration} | times | seen


def _samples(variant: str, repetition: int, burst: Any) -> pd.DataFrame:
    share = np.linspace(0, 1, 20)
    table = pd.DataFrame({"time_s": burst.start_s + share * (burst.end_s - burst.start_s)})
    key = {"variant": variant, "repetition": repetition, "job": burst.job, "flow": 0}
    state = {"ssthresh": 20, "rtt_us": 800, "retransmits": 0, "burst_bytes": BYTES}
    moving = {"cwnd": 10 + (30 * share).astype(int), "bytes_acked": (share * BYTES).astype(int)}
    return table.assign(**key, iteration=burst.iteration, **state, **moving)
