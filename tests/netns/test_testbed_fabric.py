# SPDX-License-Identifier: BSD-2-Clause
"""The testbed over a fabric: what is built, which way packets go, and a whole small run."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from mltcp_tools.lab.analysis import load_run
from mltcp_tools.lab.analysis.reference import make_reference
from mltcp_tools.lab.experiments.fabric import Fabric
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.testbed.fabric import FabricNetwork
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import NAMESPACES, PREFIX, inside
from mltcp_tools.lab.testbed.qdiscs import link_counters
from mltcp_tools.lab.testbed.run_experiment import run_experiment

FABRIC = Fabric(2, 2, 2, Link(100_000_000), Link(50_000_000, 60_000))
SIZE = 200_000

EXPERIMENT = """\
name: small
fabric: {racks: 2, hosts: 2, access: {rate: 100mbit}, uplink: {rate: 50mbit, queue: 60kB}}
jobs:
  - {name: ring, pattern: ring, hosts: [r1h1, r2h1, r1h2], bytes: 90kB, compute: 20ms, flows: 2}
  - {name: experts, pattern: experts, pieces: 2, hosts: [r1h1, r2h2], bytes: 60kB, compute: 30ms}
variants:
  reno: {cc: reno}
  cubic: {cc: cubic}
iterations: 5
repetitions: 1
alone: {iterations: 2}
"""


def crossed(
    network: FabricNetwork, source: tuple[str, int], to: tuple[str, int], size: int = SIZE
) -> set[str]:
    """The interfaces over which a transfer's packets left leaves and spines."""
    before = counters(network)
    with inside(network.host(to[0])):
        listener = socket.create_server(("", 0))
    with listener, inside(network.host(source[0])), socket.socket() as sock:
        sock.bind((network.address(*source), 0))
        sock.connect((network.address(*to), listener.getsockname()[1]))
        taken, _ = listener.accept()
        with taken:
            reader = threading.Thread(target=drain, args=(taken,))
            reader.start()
            sock.sendall(bytes(size))
            sock.shutdown(socket.SHUT_WR)
            reader.join()
    after = counters(network)
    return {name for name in after if after[name] - before[name] > size}


def drain(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def counters(network: FabricNetwork) -> dict[str, int]:
    """Bytes that left each end of each link."""
    found = {}
    for ends in (network.up, network.down):
        for name, (namespace, interface) in ends.items():
            with inside(namespace):
                way = "up" if ends is network.up else "down"
                found[f"{name} {way}"] = link_counters(interface, Link()).bytes
    return found


def test_a_connection_takes_the_spine_that_its_addresses_say() -> None:
    with RunLock() as lock:
        with FabricNetwork(lock.id, FABRIC, {}) as network:
            found = network.read_back()
            for spine in (1, 2):
                # what comes back takes the other one
                way = crossed(network, ("r1h1", 3 - spine), ("r2h2", spine))
                assert way == {"r1h1 up", f"r1s{spine} up", f"r2s{spine} down", "r2h2 down"}
            assert crossed(network, ("r1h1", 1), ("r1h2", 2)) == {"r1h1 up", "r1h2 down"}
            assert network.counters().bytes > 3 * SIZE
        assert not list(NAMESPACES.glob(f"{PREFIX}{lock.id}-*"))
    assert len(found["links"]) == 8
    for end in ("up", "down"):
        assert found["links"]["r2s1"][end]["rate"] == 50_000_000
        assert found["links"]["r2h1"][end]["queue"] == 30_000
    assert not any(found["offloads"].values())


def test_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_experiment(parse_experiment(EXPERIMENT, "small.yaml"), folder)
    run = load_run(folder)
    assert run.problems == []
    rows = run.iterations.groupby(["variant", "job"]).size().to_dict()
    variants = {(variant, job): 5 for variant in ("cubic", "reno") for job in ("ring", "experts")}
    assert rows == variants | {(ALONE, "ring"): 2, (ALONE, "experts"): 2}
    sent = run.iterations[run.iterations["job"] == "ring"]["bytes"]
    assert set(sent) == {3 * 90_000 * 4 // 3}
    assert (run.iterations["comm_s"] > 0).all()
    reference = make_reference(run)
    assert set(reference.iterations) == {"alone", "bound", "fair"}
    assert set(reference.isolated) == {"ring", "experts"}
