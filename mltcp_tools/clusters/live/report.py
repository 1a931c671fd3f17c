"""The report of a live run: cores, workers, steps and latencies over time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mltcp_tools.errors import UsageError
from mltcp_tools.figures import png, subplots


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    """Lines of a log; a last one that was cut short is left out."""
    try:
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
    except OSError:
        raise UsageError(f"{folder} has no {name}; `mltcp cluster live` writes it.") from None
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def summary(folder: Path, slo_s: float, goal: float) -> dict[str, Any]:
    """Latencies, whether a share `goal` of requests kept to the objective, loans, and steps that
    restarts cost: those that were done more than once."""
    took = [each["took"] for each in read(folder, "load.jsonl")]
    steps = [each["step"] for each in read(folder, "training.jsonl")]
    controller = read(folder, "controller.jsonl")
    units = [each["units"] for each in controller]
    worlds = [each["world"] for each in read(folder, "training.jsonl")]
    answered = [each for each in took if each is not None]
    attained = sum(each <= slo_s for each in answered) / len(took)
    # Where nothing was answered there is no latency.
    p50_s, p99_s = np.percentile(answered, [50, 99]).tolist() if answered else (None, None)
    return {
        "schema": "mltcp-cluster-live/2",
        "requests": len(took),
        "failed": took.count(None),
        "latency_p50_s": p50_s,
        "latency_p99_s": p99_s,
        "slo_s": slo_s,
        "slo_attainment": attained,
        "slo_kept": attained >= goal,
        "loans_and_reclaims": int(np.count_nonzero(np.diff(units))),
        "revived": controller[-1]["revived"],
        "worlds": sorted(set(worlds)),
        "resizes": int(np.count_nonzero(np.diff(worlds))),
        "steps": max(steps),
        "steps_repeated": len(steps) - len(set(steps)),
        "steps_lost": max(steps) - len(set(steps)),
    }


def draw(folder: Path, slo_s: float) -> bytes:
    """Cores, workers and latency over time, as PNG."""
    controller = read(folder, "controller.jsonl")
    training, load = read(folder, "training.jsonl"), read(folder, "load.jsonl")
    began = controller[0]["time"]
    figure, (cores, workers, latency) = subplots(3, 1, figsize=(8, 6), sharex=True)
    times = [each["time"] - began for each in controller]
    for name in ("inference", "training"):
        values = [each["cores"][name] for each in controller]
        cores.step(times, values, where="post", label=name)
    cores.set_ylabel("cores")
    cores.legend(fontsize=8)
    at = [each["time"] - began for each in training]
    workers.step(at, [each["world"] for each in training], where="post", color="C1")
    workers.set_ylabel("workers")
    steps = workers.twinx()
    steps.plot(at, [each["step"] for each in training], color="C2", linewidth=1)
    steps.set_ylabel("step")
    answered = [each for each in load if each["took"] is not None]
    latency.plot(
        [each["time"] - began for each in answered],
        [each["took"] for each in answered],
        ".",
        markersize=2,
    )
    latency.axhline(slo_s, color="red", linewidth=0.7)
    latency.set_ylabel("latency, s")
    latency.set_yscale("log")
    latency.set_xlabel("seconds")
    return png(figure)
