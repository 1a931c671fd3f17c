# SPDX-License-Identifier: BSD-2-Clause
"""Profiles from a real capture: two emulated jobs over the testbed's bottleneck.

s1 --- router === receiver, where the packets are captured      === the bottleneck, 50 Mbit/s
s2 ---/
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scapy.utils import RawPcapWriter
from support.emulator_processes import Emulator

from mltcp_tools.cli.main import main
from mltcp_tools.lab.experiments.experiment import Link
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Network

ETH_P_ALL = 3
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
SNAPLEN = 96
JOBS = {"s1": (500_000, "180ms"), "s2": (250_000, "110ms")}


@contextmanager
def capturing(namespace: str, path: Path) -> Iterator[None]:
    """Capture the namespace's packets, with the kernel's timestamps, into a pcap file."""
    with inside(namespace):
        packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    packets.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    packets.settimeout(0.2)
    over = threading.Event()

    def write() -> None:
        with RawPcapWriter(str(path), linktype=1, nano=True) as writer:
            writer.write_header(None)
            while not over.is_set():
                try:
                    data, about, _, _ = packets.recvmsg(1 << 16, 64)
                except TimeoutError:
                    continue
                seconds, nanoseconds = struct.unpack("qq", about[0][2])
                writer.write_packet(
                    data[:SNAPLEN],
                    sec=seconds,
                    usec=nanoseconds,
                    caplen=min(SNAPLEN, len(data)),
                    wirelen=len(data),
                )

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        packets.close()


@pytest.mark.parametrize(("jitter", "direction"), [("10%", "send"), ("5%", "both")])
def test_period_and_bytes_of_captured_jobs(
    jitter: str, direction: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.pcap"
    with (
        RunLock() as lock,
        Network(lock.id, Link(50_000_000, 30_000), {}, 2) as network,
        Emulator("server", prefix=["ip", "netns", "exec", network.receiver]) as server,
    ):
        server.port()
        with capturing(network.receiver, path):
            clients = [
                Emulator(
                    *("client", RECEIVER_ADDRESS, f"--bytes={size}B", f"--compute={compute}"),
                    *("--cc=cubic", "--iterations=30", f"--jitter={jitter}", f"--seed={number}"),
                    *("--json", f"--direction={direction}"),
                    prefix=["ip", "netns", "exec", sender],
                )
                for number, (sender, (size, compute)) in enumerate(
                    zip(network.senders, JOBS.values(), strict=True)
                )
            ]
            documents = []
            for client in clients:
                with client:
                    code, out, err = client.end()
                assert code == 0, err
                documents.append(json.loads(out))
    assert main(["lab", "profile", "--pcap", str(path), "--json"]) == 0
    profiles = json.loads(capsys.readouterr().out)["jobs"]
    assert list(profiles) == ["10.0.1.1", "10.0.2.1"]
    for profile, document, (size, _) in zip(
        profiles.values(), documents, JOBS.values(), strict=True
    ):
        # A busy host makes iterations longer and releases what a link held back at once, so that
        # only what holds for any schedule is asked; rates are those of tests/unit/lab/profiling.
        periods = np.diff([each["bursts"][0]["start"] for each in document["iterations"]])
        assert 0.98 * min(periods) <= profile["period_s"] <= 1.02 * max(periods)
        for phases, used in (("phases", True), ("back", direction == "both")):
            sent = sum(each["duration_s"] * each["rate_bps"] / 8 for each in profile[phases])
            assert sent == pytest.approx(size if used else 0, rel=0.05)
