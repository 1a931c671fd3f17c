# SPDX-License-Identifier: BSD-2-Clause
"""Leave out one rule of the algorithm at a time: by how much do iterations become longer?

    PYTHONPATH=tests nice -n 5 .venv/bin/python tests/bench/bench_rules.py
        [--into tests/bench/RESULTS.md] [RULE ...]

Each rule is a text in the headers of kmod/ and its replacement, so the code needs no switches. The
simulator runs each version over the same panel of scenarios with the same seeds. The table has, for
each rule, the change of the geometric mean of all scenarios' mean iteration times in percent, with
its 95 % interval over the seeds (Student's t), then the scenarios that change by 5 % or more and
significantly. A rule earns its place if leaving it out costs 1 % of the geometric mean, or 5 % of a
scenario that users have. The last rows have the bases in MLTCP's place.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
from scipy.stats import ttest_1samp
from support.result_tables import show_simulated

from mltcp_tools.kernel.native import extension
from mltcp_tools.kernel.native.csources import source_root
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.matrix import find_matrix, load_matrix
from mltcp_tools.lab.experiments.reading import find_experiment, load_experiment
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.simulator.variants import SimulationSettings, simulate_variant

RULES = {
    "a job's ratio": (
        "step",
        "mechanisms & MLTCP_TRUSTED ? mltcp_env_path(env, f->job, &job_key) : NULL",
        "NULL",
    ),
    "path sharing": ("delay", "if (word && word >> 32 == key)", "if (0)"),
    "average of the full queue": (
        "delay",
        "d->full_us = d->full_us ? d->full_us - d->full_us / 4 + queue_us / 4 : queue_us;",
        "d->full_us = queue_us;",
    ),
    "four segments to begin with": (
        "core",
        "#define MLTCP_CWND_BEGIN (2 * MLTCP_CWND_MIN)",
        "#define MLTCP_CWND_BEGIN MLTCP_CWND_MIN",
    ),
    "minimum as signal": ("delay", "if (queue_us < d->least_us)", "if (1)"),
    "pause between looks": (
        "yield",
        "#define MLTCP_LOOK_NS 300000ULL",
        "#define MLTCP_LOOK_NS 0ULL",
    ),
    "time to yield": ("core", "now > mltcp_yield_until(f, p)", "0"),
    "resume": ("yield", "if (f->resume_ssthresh && (!borne", "if (0 && (!borne"),
    "small beginning": ("yield", "if (!f->yield_us || f->ratio <", "if (1 || f->ratio <"),
    "largest F": ("core", "if (mechanisms & MLTCP_TRUSTED && f->delay", "if (0 && f->delay"),
    "growth below slow start": ("core", "return cwnd > before && cwnd", "return 0 && cwnd"),
    "host receives": ("core", "__u8 host_receives = host &&", "__u8 host_receives = 0 &&"),
    "flow receives": ("core", "f->flags |= MLTCP_BIDIRECTIONAL;", "f->flags |= 0;"),
    "overrun": ("core", "!mltcp_overruns(sent, total) &&", ""),
    "increase": ("core", "if (mechanisms & MLTCP_SCALE_INCREASE)\n", "if (0)\n"),
    "yield": ("core", "if (mechanisms & MLTCP_YIELD)\n", "if (0)\n"),
    "several pieces": ("learn", "i <= MLTCP_GAPS / 4; i++", "i <= 1; i++"),
    "longer gaps": ("learn", "gap_us / MLTCP_LONGER > f->gap_us &&", "0 &&"),
}
"""Of each rule: the header, what stands there, and what leaves the rule out."""

BASES = ("reno", "cubic")

SEEDS = range(101, 113)
"""No constant of the algorithm was chosen by them, but the quarter up to which F is the largest."""

ITERATIONS = 20
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
    for matrix, names in (("contenders", _ONE_LINK), ("regimes", ("rtt-2ms", "rtt-20ms", "loss"))):
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
    late = [(name, late_us) for name in _RATES[:2] for late_us in (50, 100)]
    for name, late_us in (*late, ("25g-200us-10ms", 100), ("25g-50us-100ms", 25)):
        settings = SimulationSettings(coalescing_s=late_us * 1e-6, join_s=20e-6, **_FAST)
        yield f"{name}-late-{late_us}us", fast[name], settings


def means_s(
    experiment: Experiment, settings: SimulationSettings, cc: str, seeds: range
) -> list[float]:
    """Mean iteration time of all jobs under a congestion control, seconds, by seed."""
    variant = Variant("x", cc)
    means = []
    for seed in seeds:
        run = dataclasses.replace(
            experiment, variants=(variant,), baseline="x", seed=seed, iterations=ITERATIONS
        )
        done = simulate_variant(run, variant, 1, settings)
        ends = [[each["end"] for each in made["iterations"]] for _, made in done.documents]
        means.append(float(np.mean([np.diff(each)[_SETTLED:].mean() for each in ends])))
    return means


def times(left_out: str) -> dict[str, list[float]]:
    """Mean iteration times of the panel's scenarios without a rule, or under a base.

    Empty: with all. Once per process.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for folder in ("kmod", "bpf"):
            shutil.copytree(source_root() / folder, Path(scratch, folder))
        if left_out in RULES:
            name, old, new = RULES[left_out]
            header = Path(scratch, "kmod", f"mltcp_{name}.h")
            text = header.read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise SystemExit(f"{header.name} has {old!r} {text.count(old)} times, not once")
            header.write_text(text.replace(old, new), encoding="utf-8")
        cc = left_out if left_out in BASES else "mltcp"
        with mock.patch.object(extension, "source_root", return_value=Path(scratch)):
            return {name: means_s(*scenario, cc, SEEDS) for name, *scenario in panel()}


def row(left_out: str, found: dict[str, list[float]], whole: dict[str, list[float]]) -> str:
    """A line of the table: what the panel's times are beside those of the whole algorithm."""
    logs = {name: np.log(found[name]) - np.log(whole[name]) for name in whole}
    mean, half = percent(np.mean(list(logs.values()), axis=0))
    large = []
    for name, each in logs.items():
        change, most = percent(each)
        if abs(change) >= 5 and abs(change) > most:
            large.append(f"{name} {change:+.1f} ± {most:.1f}")
    return f"| {left_out} | {mean:+.2f} ± {half:.2f} | {'; '.join(large)} |"


def percent(logs: np.ndarray) -> tuple[float, float]:
    """The mean change in percent, and half its 95 % interval."""
    if not np.ptp(logs):
        return 100 * float(np.expm1(logs[0])), 0.0
    low, high = ttest_1samp(logs, 0).confidence_interval()
    return 100 * float(np.expm1(logs.mean())), 50 * float(np.expm1(high) - np.expm1(low))


def main() -> None:
    """Print what each rule named is worth, or each of all, and the bases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rules", nargs="*", metavar="RULE", help="default: all, and the bases")
    parser.add_argument("--into", type=Path, metavar="FILE", help="page whose table is replaced")
    options = parser.parse_args()
    chosen = options.rules or [*RULES, *BASES]
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=1) as pool:
        found = pool.imap(times, ["", *chosen], chunksize=1)
        whole = next(found)
        lines = ["| without | geometric mean | scenarios that change by 5 % and more |"]
        lines.append("| --- | --- | --- |")
        for each in chosen:
            lines.append(row(each, next(found), whole))
            print(lines[-1], flush=True)
    seeds = f"seeds {SEEDS[0]} to {SEEDS[-1]}, {ITERATIONS} iterations each"
    by = f"`bench_rules.py`, {len(whole)} scenarios, {seeds}"
    show_simulated("rules", "\n".join(lines), by, options.into)


if __name__ == "__main__":
    main()
