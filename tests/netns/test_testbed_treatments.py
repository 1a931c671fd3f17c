# SPDX-License-Identifier: BSD-2-Clause
"""Feedback and priorities on real queues: that they act, and that nothing of them stays."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.rate_law import rate
from support.waiting import wait_for

from mltcp_tools.base.run_tables import COLUMNS
from mltcp_tools.kernel.backends.base import Flow
from mltcp_tools.kernel.backends.struct_ops import ZERO, unregister
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.clsact import add_egress
from mltcp_tools.kernel.host.facts import available_congestion_controls
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object
from mltcp_tools.kernel.native.rate import pack_params
from mltcp_tools.kernel.native.uapi import unpack
from mltcp_tools.lab.emulator.compression import Compression, Compressor
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.runs.run import load_run
from mltcp_tools.lab.testbed.backend import socket_cookie
from mltcp_tools.lab.testbed.leftovers import RunLock, priorities_folder
from mltcp_tools.lab.testbed.namespaces import PREFIX, inside, write_sysctl
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell
from mltcp_tools.lab.testbed.qdiscs import BOTTLENECK, FIRST_CLASS, add_classes, remove_qdisc
from mltcp_tools.lab.testbed.run_experiment import run_experiment
from mltcp_tools.live.priorities.coflows import LEVELS
from mltcp_tools.live.priorities.maps import KnownJob, Maps

PORT = 5001
BURST = 300_000

EXPERIMENT = """\
name: small
link: {rate: 50mbit, queue: 30kB}
jobs: [{count: 2, bytes: 200kB, compute: 60ms}]
variants:
  reno: {cc: reno}
  treated: VARIANT
iterations: 4
repetitions: 1
alone: {iterations: 2}
"""


def left_behind() -> list[str]:
    """Return what treatments make on the host and must take away again."""
    found = [str(path) for path in Path("/sys/fs/bpf").glob(f"{PREFIX}priorities-*")]
    found += [str(path) for path in cgroups.root().glob(f"{PREFIX}*")]
    return found + [name for name in available_congestion_controls() if name == "mltcp_int"]


@pytest.mark.bpf
@pytest.mark.parametrize(
    "variant",
    [
        "{cc: mltcp_int, treatment: {rates: {}}}",
        "{cc: mltcp_int, treatment: {rates: {source: host}}}",
        "{cc: reno, treatment: {priorities: {weight: idle, floor: 2%}}}",
        "{cc: reno, treatment: {time_shifts: {}}}",
    ],
)
def test_a_treated_variant_runs_to_its_end_and_leaves_nothing(tmp_path: Path, variant: str) -> None:
    before, here = left_behind(), cgroups.own()
    run_experiment(
        parse_experiment(EXPERIMENT.replace("VARIANT", variant), "small.yaml"), tmp_path / "run"
    )
    iterations = pd.read_csv(tmp_path / "run" / "iterations.csv")
    counts = iterations.groupby("variant").size().to_dict()
    assert counts == {"alone": 2, "reno": 8, "treated": 8}
    assert set(iterations.columns) <= set(COLUMNS["iterations"])
    said = " ".join(load_run(tmp_path / "run").environment["warnings"])
    assert "No feedback arrived" not in said
    assert "died early" not in said
    assert left_behind() == before
    assert cgroups.own() == here


@contextlib.contextmanager
def law_of_round_trips() -> Iterator[tuple[BpfMap, BpfMap]]:
    """`mltcp_int` registered, with the host's round trips as feedback; what the law keeps of each
    flow, and what the algorithm does."""
    root = Path("/sys/fs/bpf") / f"{PREFIX}law"
    root.mkdir()
    stack = contextlib.ExitStack()
    try:
        with BpfObject(build_object("mltcp_int"), root) as programs:
            programs.register_struct_ops("mltcp_int")
            stack.callback(unregister, ["mltcp_int"])
            with BpfMap.pinned(root / "mltcp_feedback") as settings:
                fields = {"target_us": 200, "low": 1 << 15, "add_bytes": 362, "host": 1}
                settings.set(ZERO, pack_params(fields))
            with (
                BpfMap.pinned(root / "mltcp_rates") as rates,
                BpfMap.pinned(root / "mltcp_flows") as flows,
            ):
                yield rates, flows
    finally:
        stack.close()
        for pin in root.iterdir():
            pin.unlink()
        root.rmdir()


@pytest.mark.bpf
def test_a_flow_takes_the_steps_that_it_hears_of() -> None:
    """A word is heard a moment after its ACK came: to the kernel's clocks that is not its age. And
    the words are of RTTs, as nothing else speaks here: the law hears each ACK's own, and the flow,
    which never yields, takes no samples for itself."""
    _, ffi = rate()
    state = ffi.new("struct mltcp_rate *")
    deadline = time.monotonic() + 60
    with law_of_round_trips() as (rates, flows), contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = stack.enter_context(socket.socket())
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"mltcp_int")
        sender.connect(server.getsockname())
        receiver = stack.enter_context(server.accept()[0])
        reading = threading.Thread(target=drain, args=(receiver,))
        reading.start()
        stack.callback(reading.join)
        stack.callback(sender.shutdown, socket.SHUT_WR)
        key = sender.fileno().to_bytes(4, sys.byteorder)
        while state.steps < 3 and time.monotonic() < deadline:
            sender.sendall(bytes(1 << 16))
            found = rates.get(key)
            assert found is not None
            ffi.memmove(state, found, ffi.sizeof("struct mltcp_rate"))
        found = flows.get(key)
        assert found is not None
        delay = unpack("mltcp_flow", found).delay
    assert state.steps >= 3
    assert not delay.watched
    assert delay.least_us in (0, 2**32 - 1)  # MLTCP_NO_SAMPLE


def drain(receiver: socket.socket) -> None:
    while receiver.recv(1 << 20):
        pass


@contextlib.contextmanager
def prioritised(marked: bool = True) -> Iterator[tuple[Dumbbell, Maps, Path]]:
    """One sender behind a bottleneck with classes, and the programs that mark and classify.

    marked: the sender's packets are marked.
    """
    with RunLock() as lock, contextlib.ExitStack() as stack:
        folder = priorities_folder(lock.id)
        folder.mkdir()
        stack.callback(lambda: subprocess.run(["rm", "-r", str(folder)], check=True))
        link = Link(100_000_000, 30_000)
        network = stack.enter_context(Dumbbell(lock.id, link, {}, 1))
        initial = {".rodata.classes": FIRST_CLASS.to_bytes(4, sys.byteorder)}
        programs = stack.enter_context(BpfObject(build_object("priority"), folder, initial))
        with inside(network.router):
            remove_qdisc(BOTTLENECK)
            add_classes(BOTTLENECK, link, LEVELS, 0.01)
            add_egress(BOTTLENECK, programs.program_fd("classify"), "classify")
        if marked:
            with inside(network.senders[0]):
                add_egress("to-router", programs.program_fd("mark"), "mark")
        yield network, stack.enter_context(Maps(folder)), folder


def give_ipv6(network: Dumbbell) -> None:
    """Addresses of IPv6 beside those that the network has, by which the sender and the receiver
    reach each other."""
    ends = ((network.senders[0], "to-router", "from-s1"), (network.receiver, *2 * (BOTTLENECK,)))
    for net, (namespace, interface, router_end) in enumerate(ends, 1):
        router, end = f"fd00:{net}::254", f"fd00:{net}::1"
        for where, device, address in (
            (network.router, router_end, router),
            (namespace, interface, end),
        ):
            with inside(where):
                write_sysctl(f"net.ipv6.conf.{device}.disable_ipv6", "0")
            ip6 = ["ip", "-n", where, "-6"]
            add = ["addr", "add", f"{address}/64", "dev", device, "nodad"]
            subprocess.run([*ip6, *add], check=True)
        route = ["ip", "-n", namespace, "-6", "route", "add", "default", "via", router]
        subprocess.run(route, check=True)
    with inside(network.router):
        write_sysctl("net.ipv6.conf.all.forwarding", "1")


@contextlib.contextmanager
def connection(network: Dumbbell, version: int = 4) -> Iterator[socket.socket]:
    """A connection from the sender to a receiver that takes all it gets."""
    address, family = RECEIVER_ADDRESS, socket.AF_INET
    if version == 6:
        give_ipv6(network)
        address, family = "fd00:2::1", socket.AF_INET6
    with inside(network.receiver):
        listener = socket.create_server((address, PORT), family=family)

    def take() -> None:
        with listener.accept()[0] as accepted:
            while accepted.recv(65536):
                pass

    thread = threading.Thread(target=take)
    thread.start()
    with inside(network.senders[0]):
        sock = socket.create_connection((address, PORT))
    try:
        yield sock
    finally:
        sock.close()
        thread.join()
        listener.close()


def sent_by_level(network: Dumbbell) -> list[int]:
    """Bytes that each level's class has sent, the best first."""
    with inside(network.router):
        shown = subprocess.run(
            ["tc", "-s", "class", "show", "dev", BOTTLENECK],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("class htb ")
    found = {}
    for each in shown[1:]:
        words = each.split()
        found[words[0]] = int(words[words.index("Sent") + 1])
    return [found[f"1:{FIRST_CLASS + level & 0xFFFF:x}"] for level in range(LEVELS)]


@pytest.mark.bpf
@pytest.mark.parametrize("version", [4, 6])
def test_packets_take_the_class_of_their_jobs_level(version: int) -> None:
    with prioritised() as (network, maps, _), connection(network, version) as sock:
        maps.set_job(1, KnownJob(BURST, 10_000_000), [socket_cookie(sock.fileno())])
        maps.set_level(1, 3)
        before = sent_by_level(network)
        maps.live()  # for half a second
        sock.sendall(bytes(1000))
        wait_for(lambda: sent_by_level(network)[3] > before[3], "packets of its level")
        assert sent_by_level(network)[:3] == before[:3]


@pytest.mark.bpf
def test_a_job_that_isnt_first_compresses_and_says_so() -> None:
    """It asks for its level when its burst is ready; the controller goes by what it then sends."""
    with prioritised() as (_, maps, folder):
        maps.set_job(3, KnownJob(BURST, 10_000_000, (0, 2)), [])
        told = Compression(0.25, 0.5, str(folder), 3)
        with Compressor(told) as compressor, Compressor(Compression()) as aimless:
            whole = [3000, 100]
            for level, sent in ((None, whole), (0, whole), (1, [750, 64]), (0, whole)):
                if level is not None:
                    maps.set_level(3, level)
                assert compressor.chosen(whole) == (sent, 0.5 if sent[0] == 750 else 0.0)
                assert maps.jobs()[3] == KnownJob(sum(sent), 10_000_000, (0, 2))
                assert aimless.chosen(whole) == (whole, 0.0)


def a_flow(cookie: int, job: int = 1) -> Flow:
    """A flow of a job that the kernel has learned nothing of."""
    found = {field.name: field.type for field in dataclasses.fields(Flow)}
    values: dict[str, Any] = {
        name: "" if kind == "str" else False if kind == "bool" else 0
        for name, kind in found.items()
    }
    return Flow(**values | {"cookie": cookie, "job_id": job})
