# SPDX-License-Identifier: BSD-2-Clause
"""Runs across machines; the machines are namespaces, and nsenter stands where ssh would.

s1 --- router === receiver          the run is at the router, the agents are at the others
s2 ---/
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from netns.runs import EXPERIMENT, table, write
from support import procfs

from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.host.facts import read_sysctl
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell

MLTCP = f"{sys.executable} -m mltcp_tools.cli.main"
# Three jobs on two senders: the first and the last share one.
SHARING = (
    EXPERIMENT.replace("queue: 30kB", "queue: 40kB").replace("start: random", "start: 30ms")
    + "sysctls: {net.ipv4.tcp_sack: 0}\n"
)


@dataclass
class Bench:
    """A network whose namespaces play the machines, and the folder of a test."""

    network: Dumbbell
    folder: Path

    def command(
        self,
        *options: str,
        variants: str,
        direction: str = "send",
        senders: int = 2,
        address: str = RECEIVER_ADDRESS,
        remote: str = MLTCP,
    ) -> list[str]:
        """The run's command line, as the router starts it."""
        experiment = write(self.folder, variants, direction, SHARING)
        return [
            *("nsenter", f"--net=/run/netns/{self.network.router}"),
            *("env", f"MLTCP_SSH={self.folder / 'ssh'}", f"MLTCP_REMOTE={remote}"),
            *MLTCP.split(),
            *("testbed", "run", str(experiment), "-o", str(self.run)),
            *(f"--sender={sender}" for sender in self.network.senders[:senders]),
            f"--receiver={self.network.receiver}={address}",
            *options,
        ]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def table(self, name: str) -> pd.DataFrame:
        return table(self.run, name)

    def processes(self, *machines: str) -> dict[int, list[str]]:
        """The processes on these machines, or all, by pid, with their command lines."""
        everywhere = (self.network.router, self.network.receiver, *self.network.senders)
        inodes = {os.stat(f"/run/netns/{name}").st_ino for name in machines or everywhere}
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                inside_one = os.stat(path / "ns/net").st_ino in inodes
                if inside_one and (words := procfs.command(int(path.name))):
                    found[int(path.name)] = words
        return found

    def agent(self, machine: str) -> int:
        """The pid of the agent on a machine."""
        return next(pid for pid, words in self.processes(machine).items() if "serve" in words)

    def wait_for_iterations(self, process: subprocess.Popen[str]) -> None:
        """Wait until the run's jobs have sent what takes them several iterations."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            assert process.poll() is None
            with inside(self.network.router):
                lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
            counters = next(line.split() for line in lines if "bottleneck:" in line)
            if int(counters[9]) > 2_000_000:
                return
            time.sleep(0.1)
        raise AssertionError("the jobs never ran")

    def sysctls(self) -> set[str]:
        """The experiment's sysctl, as it is on the machines now."""
        values = set()
        for namespace in (*self.network.senders, self.network.receiver):
            with inside(namespace):
                values.add(read_sysctl("net.ipv4.tcp_sack"))
        return values

    def environment(self) -> dict[str, object]:
        document: dict[str, object] = json.loads((self.run / "environment.json").read_text())
        return document


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    reach = tmp_path / "ssh"
    reach.write_text(
        '#!/bin/sh\nmachine=$1\nshift\nexec nsenter --net="/run/netns/$machine" "$@"\n'
    )
    reach.chmod(0o755)
    with RunLock() as lock, Dumbbell(lock.id, Link(), {}, 2) as network:
        bench = Bench(network, tmp_path)
        yield bench
        left = bench.processes()
        ours = {"serve", "mltcp_tools.lab.emulator"}
        assert [words for words in left.values() if ours & set(words)] == []


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_run_folder_is_like_that_of_a_run_on_one_machine(bench: Bench) -> None:
    done = run(bench.command(variants="cubic: {cc: cubic}\n  reno: {cc: reno}"))
    assert done.returncode == 0, done.stderr
    assert "captured" in done.stdout
    iterations = bench.table("iterations")
    counted = iterations.groupby(["variant", "repetition", "job"]).size()
    jobs = ("job-1", "job-2", "other")
    assert counted.to_dict() == {
        (variant, repetition, job): 3 if variant == "alone" else 9
        for repetition in (1, 2)
        for variant in ("alone", "cubic", "reno")
        for job in jobs
        if (variant, job) != ("alone", "job-2")  # the same as job-1
    }
    in_variants = iterations[iterations["variant"] != "alone"]
    first = in_variants[in_variants["iteration"] == 1]
    assert (first[first["job"] != "other"]["start_s"] > 0.0299).all()
    # The variants of a repetition face the same jobs, wherever they run.
    keys = ["repetition", "job", "iteration"]
    computes = in_variants.pivot(index=keys, columns="variant", values="compute_s")
    assert (computes["cubic"] == computes["reno"]).all()
    variants = bench.table("variants")
    lone = variants["variant"] == "alone"
    assert (variants[~lone]["link_bytes"] > 9 * (2 * 100_000 + 60_000)).all()
    assert (variants[lone]["link_bytes"] < 2 * 3 * (100_000 + 60_000)).all()
    assert set(bench.table("samples")["job"]) == set(jobs)
    environment = bench.environment()
    assert environment["outcome"] == "finished"
    warnings = environment["warnings"]
    assert isinstance(warnings, list)
    assert not [warning for warning in warnings if "CPUs" not in warning]  # a busy host may doubt
    machines = environment["machines"]
    assert isinstance(machines, dict)
    assert sorted(machines) == sorted([*bench.network.senders, bench.network.receiver])
    assert machines[bench.network.senders[1]]["sysctls"]["net.ipv4.tcp_sack"] == "0"
    assert bench.sysctls() == {"1"}


@pytest.mark.bpf
def test_a_sender_loads_mltcp_and_reports_its_events(bench: Bench) -> None:
    run_with_mltcp(bench, "bpf", senders=1)  # of two on one kernel only one gets the events


def run_with_mltcp(bench: Bench, name: str, senders: int) -> None:
    """Run MLTCP variants through the backend, and look for what they leave behind and don't."""
    backend = get_backend(name)
    before = backend.status().loaded
    done = run(
        bench.command(
            f"--backend={name}",
            "--repetitions=1",
            variants="mltcp: {cc: mltcp, slope: 2}\n  reno: {cc: mltcp_reno}",
            senders=senders,
        )
    )
    assert done.returncode == 0, done.stderr
    events = bench.table("flow_events")
    assert set(events["variant"]) == {"alone", "mltcp", "reno"}
    assert set(events["job"]) == {"job-1", "job-2", "other"}
    other = events[(events["variant"] == "mltcp") & (events["job"] == "other")]
    assert set(other["flow"]) == {0, 1}
    assert other["iteration"].between(1, 9).all()
    assert backend.status().loaded == before
    assert backend.status().jobs == ()


def test_an_agent_that_dies_ends_the_run_with_its_name(bench: Bench) -> None:
    command = bench.command("--iterations=100000", "--no-alone", variants="cubic: {cc: cubic}")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            bench.wait_for_iterations(process)
            os.kill(bench.agent(bench.network.senders[1]), signal.SIGKILL)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1
    assert f"The agent on {bench.network.senders[1]} ended: exit code -9" in said
    # What the other sender had measured is there.
    assert {"job-1", "other"} <= set(bench.table("iterations")["job"])
    assert "ended" in str(bench.environment()["outcome"])


def test_interrupted_it_leaves_what_was_measured_and_no_process(bench: Bench) -> None:
    command = bench.command("--iterations=100000", "--no-alone", variants="cubic: {cc: cubic}")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            bench.wait_for_iterations(process)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert set(bench.table("iterations")["job"]) == {"job-1", "job-2", "other"}
    assert bench.environment()["outcome"] == "interrupted"
    assert bench.sysctls() == {"1"}


@pytest.mark.parametrize(
    ("settings", "code", "sentence"),
    [
        ({"variants": "x: {cc: cubic}", "direction": "both"}, 2, "across machines jobs can only"),
        ({"variants": "x: {cc: nosuch}"}, 1, "nosuch"),
        ({"variants": "x: {cc: cubic}", "remote": "no-such-command"}, 1, "no-such-command"),
        ({"variants": "x: {cc: cubic}", "address": "192.0.2.1"}, 3, "no route to 192.0.2.1"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_sentence(
    bench: Bench, settings: dict[str, str], code: int, sentence: str
) -> None:
    done = run(bench.command(**settings))
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
