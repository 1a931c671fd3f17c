# SPDX-License-Identifier: BSD-2-Clause
"""Measures what the eBPF programs of each variant cost, by the kernel's own statistics of programs.

    sudo .venv/bin/python tests/bench/bench_bpf.py [--variants mltcp_reno,mltcp] [--iterations 8]

Runs an experiment's variants on the testbed, with kernel.bpf_stats_enabled, and prints for each
variant how often each program ran and how long it took on average. Then what an ACK costs: the time
of the congestion control's programs over the count of `pkts_acked`, which every ACK of new data
runs once. The statistics' own two looks at the clock are part of each run; what the cheapest
program took, which does next to nothing, is about that, and the second figure is without it. The
program that writes and reads headers for `feedback: network` runs for packets of both ends, and is
told of by itself. In a VM in virtual time (scripts/vm run … --icount) a nanosecond is an
instruction.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENABLED = Path("/proc/sys/kernel/bpf_stats_enabled")
EACH_S = 0.25
ACK = "pkts_acked"
HEADERS = "feedback"
ELSEWHERE = (HEADERS, "hop", "mark", "classify", "dump_flows")
"""Programs that run for packets, some of them on other machines, or for whoever lists flows."""


@contextmanager
def statistics() -> Iterator[None]:
    before = ENABLED.read_text()
    ENABLED.write_text("1")
    try:
        yield
    finally:
        ENABLED.write_text(before)


def counted() -> dict[int, tuple[str, int, int]]:
    """Id -> name, runs, and their nanoseconds, of the programs that have run."""
    listed = subprocess.run(
        ["bpftool", "--json", "prog", "show"], capture_output=True, text=True, check=True
    ).stdout
    return {
        each["id"]: (each.get("name", "?"), each["run_cnt"], each["run_time_ns"])
        for each in json.loads(listed)
        if each.get("run_cnt")
    }


def run_variant(experiment: str, variant: str, iterations: int) -> dict[str, tuple[int, int]]:
    """Program -> runs and nanoseconds while the variant ran."""
    before = counted()
    last: dict[int, tuple[str, int, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [*(sys.executable, "-m", "mltcp_tools.cli.main", "testbed", "run", experiment)]
        command += ["--variants", variant, "--iterations", str(iterations), "--repetitions", "1"]
        command += ["--no-alone", "--trace", "0", "--attempts", "1", "--backend", "bpf"]
        command += ["-o", f"{folder}/run"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            while running.poll() is None:
                last |= counted()
                time.sleep(EACH_S)
        if running.returncode:
            sys.exit(f"the variant {variant} failed ({running.returncode}): {' '.join(command)}")
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for number, (name, runs, ns) in last.items():
        _, runs_before, ns_before = before.get(number, (name, 0, 0))
        found[name][0] += runs - runs_before
        found[name][1] += ns - ns_before
    return {name: (runs, ns) for name, (runs, ns) in found.items() if runs}


def show_ack(found: dict[str, tuple[int, int]]) -> None:
    acks = found[ACK][0]
    own = {name: each for name, each in found.items() if name not in ELSEWHERE}
    clock = min(ns / runs for runs, ns in own.values() if runs > acks / 100)
    whole = sum(ns for _, ns in own.values()) / acks
    less = sum(ns - runs * clock for runs, ns in own.values()) / acks
    print(f"  an ACK of new data: {whole:.0f} ns, without {clock:.0f} ns per run {less:.0f} ns")
    if HEADERS in found:
        runs, ns = found[HEADERS]
        print(
            f"  headers: {runs / acks:.1f} runs per ACK of {ns / runs:.0f} ns, without that"
            f" {ns / runs - clock:.0f} ns"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiment", default="twins")
    parser.add_argument("--variants", default="mltcp_reno,mltcp")
    parser.add_argument("--iterations", type=int, default=8)
    args = parser.parse_args()
    with statistics():
        for variant in args.variants.split(","):
            found = run_variant(args.experiment, variant, args.iterations)
            print(f"{variant}:")
            for name, (runs, ns) in sorted(found.items(), key=lambda each: -each[1][1]):
                print(f"  {name:16} {runs:9} runs  {ns / runs:7.0f} ns each")
            if ACK in found:
                show_ack(found)


if __name__ == "__main__":
    main()
