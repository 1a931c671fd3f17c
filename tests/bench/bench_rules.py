# SPDX-License-Identifier: BSD-2-Clause
"""Leave out one rule of the algorithm at a time: by how much do iterations become longer?

    nice -n 5 python tests/bench/bench_rules.py [RULE ...]

Each rule is a text in the headers of kmod/ and its replacement, so the code needs no switches. The
simulator runs each version over the same panel of scenarios with the same seeds. Printed as CSV:
for each rule, the change of the geometric mean of all scenarios' mean iteration times in percent,
then the scenarios that change by 5 % or more. A rule earns its place if leaving it out costs 1 % of
the geometric mean, or 5 % of a scenario that users have.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from mltcp_tools.kernel.native import extension
from mltcp_tools.kernel.native.csources import source_root
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.matrix import find_matrix, load_matrix
from mltcp_tools.lab.experiments.reading import find_experiment, load_experiment
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.simulator.variants import SimulationSettings, simulate_variant

RULES = {
    "path sharing": ("delay", "if (word && word >> 32 == key)", "if (0)"),
    "minimum as signal": ("delay", "if (queue_us < d->least_us)", "if (1)"),
    "pause between looks": (
        "yield",
        "#define MLTCP_LOOK_NS 300000ULL",
        "#define MLTCP_LOOK_NS 0ULL",
    ),
    "time to yield": ("core", "return now > f->start_ns && now", "return 0 && now"),
    "usual pause": ("core", "return f->iteration < 2 || !most_us", "return 1 || !most_us"),
    "bounded resume": ("yield", "if (back <= most)", "if (1)"),
    "resume": ("yield", "if (f->resume_ssthresh && f->delay", "if (0 && f->delay"),
    "small beginning": ("yield", "if (!f->yield_us || f->ratio <", "if (1 || f->ratio <"),
    "growth as the base": ("core", "if (f->gain < MLTCP_ONE && f->delay", "if (0 && f->delay"),
    "growth below slow start": ("core", "return cwnd > before && cwnd", "return 0 && cwnd"),
    "host receives": ("core", "__u8 host_receives = host &&", "__u8 host_receives = 0 &&"),
    "flow receives": ("core", "f->flags |= MLTCP_BIDIRECTIONAL;", ";"),
    "overrun": ("core", "!mltcp_overruns(sent, total) &&", ""),
    "increase": ("core", "if (mechanisms & MLTCP_SCALE_INCREASE)\n", "if (0)\n"),
    "yield": ("core", "if (mechanisms & MLTCP_YIELD)\n", "if (0)\n"),
    "several pieces": ("learn", "i <= MLTCP_GAPS / 4; i++", "i <= 1; i++"),
    "longer gaps": ("learn", "(gap_us / MLTCP_LONGER > f->gap_us &&", "(0 &&"),
}
"""Of each rule: the header, what stands there, and what leaves the rule out."""

_SEEDS = (101, 102, 103, 104)
_ITERATIONS = 40
_SETTLED = 5
_FAST = {"rtt_s": 20e-6, "mtu": 9000}
_ONE_LINK = (
    *("two-jobs", "four-jobs", "six-jobs", "lockstep", "deep-queue", "unequal", "ratio-2-3"),
    *("overfull", "straggler", "two-bursts", "eight-flows", "eight-flows-deep", "uneven-flows"),
    *("short-queue", "fast-link", "rtt-10ms", "leaf-spine", "bulk", "requests"),
)
_RATES = ("10g-200us-10ms", "10g-1ms-10ms", "10g-1ms-100ms", "25g-200us-10ms", "25g-1ms-10ms")
_PATTERNS = ("rings", "ring", "pipeline", "experts", "sharded")


def panel() -> Iterator[tuple[str, Experiment, SimulationSettings]]:
    """The scenarios: name, experiment, and how to simulate it."""
    for matrix, names in (("contenders", _ONE_LINK), ("regimes", ("rtt-2ms", "loss"))):
        scenarios = load_matrix(find_matrix(matrix)).scenarios
        yield from ((name, scenarios[name], SimulationSettings()) for name in names)
    yield from (
        (name, load_experiment(find_experiment(name)), SimulationSettings()) for name in _PATTERNS
    )
    both = load_matrix(find_matrix("both-ways")).scenarios["two-way"]
    for queue in (30_000, 150_000):
        link = dataclasses.replace(both.link, queue=queue)
        name = f"two-way-{queue // 1000}kB"
        yield name, dataclasses.replace(both, link=link), SimulationSettings()
    fast = load_matrix(find_matrix("fast-links")).scenarios
    for name in _RATES:
        yield name, fast[name], SimulationSettings(join_s=20e-6, **_FAST)
    for name in _RATES[:2]:
        for late_us in (50, 100):
            settings = SimulationSettings(coalescing_s=late_us * 1e-6, join_s=20e-6, **_FAST)
            yield f"{name}-late-{late_us}us", fast[name], settings


def mean_s(experiment: Experiment, settings: SimulationSettings, cc: str = "mltcp") -> float:
    """Mean iteration time of all jobs under a congestion control, seconds."""
    variant = Variant("x", cc)
    times = []
    for seed in _SEEDS:
        run = dataclasses.replace(
            experiment, variants=(variant,), baseline="x", seed=seed, iterations=_ITERATIONS
        )
        done = simulate_variant(run, variant, 1, settings)
        for _, document in done.documents:
            ends = [each["end"] for each in document["iterations"]]
            times.append(np.diff(ends)[_SETTLED:].mean())
    return float(np.mean(times))


def times(rule: str) -> dict[str, float]:
    """Mean iteration times of the panel without a rule (`""`: with all). Once per process."""
    with tempfile.TemporaryDirectory() as scratch:
        for folder in ("kmod", "bpf"):
            shutil.copytree(source_root() / folder, Path(scratch, folder))
        if rule:
            name, old, new = RULES[rule]
            header = Path(scratch, "kmod", f"mltcp_{name}.h")
            text = header.read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise SystemExit(f"{header.name} has {old!r} {text.count(old)} times, not once")
            header.write_text(text.replace(old, new), encoding="utf-8")
        with mock.patch.object(extension, "source_root", return_value=Path(scratch)):
            return {name: mean_s(experiment, settings) for name, experiment, settings in panel()}


def main() -> None:
    """Print what each rule named is worth, or each of all."""
    chosen = ["", *(sys.argv[1:] or RULES)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(os.sched_getaffinity(0)), maxtasksperchild=1) as pool:
        results = dict(zip(chosen, pool.imap(times, chosen, chunksize=1), strict=True))
    base = results.pop("")
    print("rule,geometric_mean_percent,scenarios_of_5_percent")
    for rule, found in results.items():
        changes = {name: found[name] / base[name] for name in base}
        mean = math.exp(np.log(list(changes.values())).mean())
        percent = {name: 100 * (by - 1) for name, by in changes.items() if abs(by - 1) >= 0.05}
        large = "; ".join(f"{name} {by:+.1f}" for name, by in percent.items())
        print(f"{rule},{100 * (mean - 1):+.2f},{large}")


if __name__ == "__main__":
    main()
