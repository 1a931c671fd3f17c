# SPDX-License-Identifier: BSD-2-Clause
"""An hour of an emulated cluster: jobs come, run by packets over Reno in virtual time, and go; what
a cluster would know of them is imported, and predicted. Two answers of `ask` are
held against packets: the same hour over MLTCP, and with uplinks twice as fast.

    python tests/bench/bench_emulated_cluster.py FOLDER [MINUTES]

Twelve hosts of one GPU in two racks below one switch; rings of four on any hosts that are free, of
three models. FOLDER gets the run, jobs.csv, topology.conf, models.yaml and mine.yaml, for `mltcp
cluster ask`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from mltcp_tools.cli.main import main
from mltcp_tools.lab.runs.run import load_run

HOSTS = [f"r{rack}h{host}" for rack in (1, 2) for host in range(1, 7)]
RANKS = 4
MODELS = {"small": (0.8, 250, 1.4), "medium": (1.2, 500, 2.4), "large": (1.6, 900, 3.9)}
"""Seconds of computing, kB of gradients, and about how long an iteration takes, in seconds."""
ORIGIN = datetime(2026, 3, 1, 10, tzinfo=UTC)


def jobs(minutes: float, draw: np.random.Generator) -> list[dict[str, object]]:
    """Jobs one after another on hosts that are free by then, with room for longer iterations."""
    free_s = dict.fromkeys(HOSTS, 0.0)
    found: list[dict[str, object]] = []
    while True:
        model = str(draw.choice(list(MODELS)))
        compute_s, size, iteration_s = MODELS[model]
        soonest = sorted(HOSTS, key=lambda host: (free_s[host], draw.random()))[:RANKS]
        start_s = max(free_s[host] for host in soonest) + float(draw.uniform(1, 20))
        iterations = int(draw.uniform(0.06, 0.16) * minutes * 60 / iteration_s)
        end_s = start_s + 1.35 * iterations * iteration_s
        if end_s > minutes * 60:
            return sorted(found, key=lambda job: float(str(job["start"]).rstrip("s")))
        free_s |= dict.fromkeys(soonest, end_s)
        number = sum(str(job["name"]).startswith(model) for job in found) + 1
        found.append(
            {
                "name": f"{model}-{number}",
                "pattern": "ring",
                "hosts": sorted(soonest),  # as Slurm numbers ranks
                "bytes": f"{size}kB",
                "compute": f"{compute_s}s",
                "jitter": "5%",
                "start": f"{start_s:.1f}s",
                "iterations": iterations,
                "flows": 4,
            }
        )


def ran(folder: Path, minutes: float, uplink: str, variants: list[str]) -> dict[str, object]:
    """Run the hour by packets; FOLDER has the run, and what is returned is its experiment."""
    experiment: dict[str, object] = {
        "name": "emulated",
        "fabric": {
            "racks": 2,
            "hosts": len(HOSTS) // 2,
            "spines": 1,
            "access": {"rate": "20mbit", "queue": "60kB"},
            "uplink": {"rate": uplink, "queue": "60kB"},
        },
        "jobs": jobs(minutes, np.random.default_rng(1)),
        "variants": {variant: {"cc": variant} for variant in variants},
        "baseline": "reno",
        "iterations": 20,
        "repetitions": 1,
        "seed": 1,
        "alone": {"iterations": 5},
    }
    file = folder.with_suffix(".yaml")
    file.write_text(json.dumps(experiment), encoding="utf-8")
    assert main(["simulate", str(file), "--trace", "0", "-o", str(folder)]) == 0
    return experiment


def times(run: Path, variant: str) -> tuple[pd.Series, pd.Series]:
    """Seconds at which each job began and ended."""
    table = load_run(run).iterations
    own = table[table["variant"] == variant].groupby("job")
    return own["start_s"].min(), own["end_s"].max()


def held_s(run: Path, variant: str) -> float:
    """GPU seconds that jobs held."""
    began, ended = times(run, variant)
    return float((ended - began).sum()) * RANKS


def written(folder: Path, minutes: float) -> None:
    """Run the hour, and write what a cluster would have of it."""
    experiment = ran(folder / "run", minutes, "20mbit", ["reno", "mltcp"])
    began, ended = times(folder / "run", "reno")
    lines = ["name,submitted,start,end,gpus,nodes,iterations"]
    for job in experiment["jobs"]:  # type: ignore[attr-defined]
        start, end = (
            (ORIGIN + timedelta(seconds=at[job["name"]])).strftime("%Y-%m-%dT%H:%M:%S")
            for at in (began, ended)
        )
        nodes = ";".join(job["hosts"])
        lines.append(f"{job['name']},{start},{start},{end},{RANKS},{nodes},{job['iterations']}")
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    table = {
        name: {"size": f"{size}kB", "compute": f"{compute_s}s"}
        for name, (compute_s, size, _) in MODELS.items()
    }
    (folder / "models.yaml").write_text(json.dumps({"models": table}), encoding="utf-8")
    racks = [f"SwitchName=leaf{rack} Nodes=r{rack}h[1-6]" for rack in (1, 2)]
    conf = "\n".join([*racks, "SwitchName=spine Switches=leaf[1-2]"])
    (folder / "topology.conf").write_text(conf + "\n", encoding="utf-8")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    written(where, float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)
    network = ["--network", str(where / "topology.conf"), "--rate", "20mbit", "--uplink", "20mbit"]
    network += ["--queue", "60kB"]
    seen = ["--models", str(where / "models.yaml")]
    data = str(where / "mine.yaml")
    assert main(["cluster", "import", str(where / "jobs.csv"), "-o", data, *network, *seen]) == 0
    assert main(["cluster", "ask", data]) == 0
    ran(where / "wide", float(sys.argv[2]) if len(sys.argv) > 2 else 60.0, "40mbit", ["reno"])
    before_s = held_s(where / "run", "reno")
    for change, run, variant in (("twice the uplinks", "wide", "reno"), ("mltcp", "run", "mltcp")):
        print(f"By packets, {change} saves {1 - held_s(where / run, variant) / before_s:+.1%}.")
