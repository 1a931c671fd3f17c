# SPDX-License-Identifier: BSD-2-Clause
"""Whole runs of the testbed with what only a VM's kernel has: delay, RED, the module."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyroute2 import IPRoute

from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.lab.experiments.links import QDISCS, Link, Qdisc
from mltcp_tools.lab.experiments.reading import load_experiment
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import Dumbbell
from mltcp_tools.lab.testbed.run_experiment import run_experiment

BPF = (pytest.mark.bpf, pytest.mark.full)


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_numpy_sorts_right_under_emulation(kind: str) -> None:
    """QEMU 7.2 has instructions of AVX2 that go wrong, and reports are made of sorted numbers."""
    for size in range(1, 200):
        numbers = np.random.default_rng(size).permutation(size)
        order = np.argsort(numbers.astype(kind))
        assert np.array_equal(numbers[order], np.arange(size)), size


EXPERIMENT = """\
name: vm
link: {rate: 20mbit, queue: 60kB, delay: 10ms, LINK}
jobs:
  - {name: job, count: 2, bytes: 100kB, compute: 100ms, jitter: 5%}
variants:
  base: {cc: BASE}
  mltcp: {cc: MLTCP}
baseline: base
iterations: 10
repetitions: 1
alone: {iterations: 2}
"""


def experiment(folder: Path, **words: str) -> Path:
    """The experiment in a file; the words replace those in capitals."""
    text = EXPERIMENT
    for word, value in words.items():
        text = text.replace(word, value)
    path = folder / "VM.yaml"
    path.write_text(text)
    return path


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.csv")


@pytest.mark.parametrize("backend", [pytest.param("bpf", marks=BPF), "kmod"])
def test_two_jobs_over_a_link_with_delay(tmp_path: Path, backend: str) -> None:
    path = experiment(tmp_path, LINK="aqm: none", BASE="cubic", MLTCP="mltcp")
    folder = tmp_path / "run"
    run_experiment(load_experiment(path), folder, trace_ms=0, backend=backend)
    iterations = table(folder, "iterations")
    assert len(iterations) == 2 * 2 * 10 + 2
    assert iterations["comm_s"].min() > 0.04  # 100 kB at 20 Mbit/s
    events = table(folder, "flow_events")
    assert set(events["job"]) == {"job-1", "job-2"}
    assert events["srtt_us"].min() > 9_000
    assert not get_backend(backend).is_present()


@pytest.mark.full
def test_two_jobs_of_dctcp_over_a_link_that_marks(tmp_path: Path) -> None:
    path = experiment(tmp_path, LINK="aqm: red", BASE="dctcp", MLTCP="mltcp_dctcp")
    run_experiment(load_experiment(path), tmp_path / "run", trace_ms=0, backend="kmod")
    variants = table(tmp_path / "run", "variants").set_index("variant")
    assert variants["link_marks"]["base"] > 0
    assert variants["link_marks"]["mltcp"] > 0


@pytest.mark.parametrize("qdisc", QDISCS[1:])
def test_what_hosts_send_passes_their_qdisc(qdisc: Qdisc) -> None:
    link = Link(qdisc=qdisc)
    with RunLock() as lock, Dumbbell(lock.id, link, {}, 1, both_ways=True) as network:
        for namespace in (network.senders[0], network.receiver):
            with inside(namespace), IPRoute() as ip:
                (index,) = ip.link_lookup(ifname="to-router")
                found = [each.get_attr("TCA_KIND") for each in ip.get_qdiscs(index=index)]
            assert qdisc in found, namespace


@pytest.mark.full
def test_the_command_reports(tmp_path: Path) -> None:
    path = experiment(tmp_path, LINK="aqm: none", BASE="reno", MLTCP="mltcp_reno")
    command = [sys.executable, "-m", "mltcp_tools.cli.main", "testbed", "run", str(path)]
    options = ["--backend", "auto", "-o", str(tmp_path / "run"), "--json", "--attempts", "1"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["variants"]) >= {"base", "mltcp"}
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["backend"]["backend"] == "kmod"  # the module is installed here
    assert (tmp_path / "run" / "report.html").exists()
