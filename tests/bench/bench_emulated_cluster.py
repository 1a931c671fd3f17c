"""An hour of an emulated cluster: jobs come, run by packets over Reno in virtual time, and go; what
Slurm and the agent would have written of them is imported, and predicted.

    python tests/bench/bench_emulated_cluster.py FOLDER [MINUTES]

Twelve hosts of one GPU in two racks below one switch; rings of four on any hosts that are free, of
three models. FOLDER gets the run, jobs.txt (sacct's), topology.conf and mine.yaml, for `mltcp
cluster replay` and `ask`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

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


def written(folder: Path, minutes: float) -> None:
    """Run the hour, and write what a cluster would have of it."""
    experiment = {
        "name": "emulated",
        "fabric": {
            "racks": 2,
            "hosts": len(HOSTS) // 2,
            "spines": 1,
            "access": {"rate": "20mbit", "queue": "60kB"},
            "uplink": {"rate": "20mbit", "queue": "60kB"},
        },
        "jobs": jobs(minutes, np.random.default_rng(1)),
        "arms": {"reno": {"cc": "reno"}},
        "baseline": "reno",
        "iterations": 20,
        "repetitions": 1,
        "seed": 1,
        "alone": {"iterations": 5},
    }
    file = folder / "emulated.yaml"
    file.write_text(json.dumps(experiment), encoding="utf-8")
    assert main(["simulate", str(file), "--trace", "0", "-o", str(folder / "run")]) == 0
    table = load_run(folder / "run").iterations
    own = table[table["arm"] == "reno"].groupby("job")
    lines = ["JobID|JobName|Submit|Start|End|State|AllocTRES|NodeList"]
    for number, job in enumerate(experiment["jobs"]):  # type: ignore[arg-type]
        start_s, end_s = own["start_s"].min()[job["name"]], own["end_s"].max()[job["name"]]
        start, end = (
            (ORIGIN + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%S")
            for at in (start_s, end_s)
        )
        nodes = ",".join(job["hosts"])
        lines.append(
            f"{number}|{job['name']}|{start}|{start}|{end}|COMPLETED|gres/gpu={RANKS}|{nodes}"
        )
    (folder / "jobs.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    racks = [f"SwitchName=leaf{rack} Nodes=r{rack}h[1-6]" for rack in (1, 2)]
    conf = "\n".join([*racks, "SwitchName=spine Switches=leaf[1-2]"])
    (folder / "topology.conf").write_text(conf + "\n", encoding="utf-8")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    written(where, float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)
    network = ["--topology", str(where / "topology.conf"), "--rate", "20mbit", "--uplink", "20mbit"]
    seen = ["--recorded", str(where / "run"), "--arm", "reno"]
    data = str(where / "mine.yaml")
    assert main(["cluster", "import", str(where / "jobs.txt"), "-o", data, *network, *seen]) == 0
    sys.exit(main(["cluster", "replay", data]))
