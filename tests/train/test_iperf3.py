# SPDX-License-Identifier: BSD-2-Clause
"""A transfer of iperf3, attached and detached in mid-flow."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from train.conftest import Report
from train.mltcp import bottleneck, loaded, mltcp_json

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Network

pytestmark = pytest.mark.bpf

SECONDS = 12
LISTENS = f":{5201:04X} "
"""The port of iperf3 as the local end of a socket in /proc/net/tcp."""


def wait_for_server(network: Network) -> None:
    """Wait until it listens; a connection tried would use the server up."""
    deadline = time.monotonic() + 30
    with inside(network.receiver):
        tables = [Path("/proc/thread-self/net") / name for name in ("tcp", "tcp6")]
        while not any(LISTENS in table.read_text() for table in tables if table.exists()):
            assert time.monotonic() < deadline
            time.sleep(0.05)


@contextlib.contextmanager
def iperf3(network: Network, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A client that has begun to send."""
    words = ("iperf3", "--client", RECEIVER_ADDRESS, "--json", "--time", str(SECONDS), *options)
    with inside(network.receiver):
        server = subprocess.Popen(["iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL)
    try:
        wait_for_server(network)
        with inside(network.senders[0]):
            client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            yield client
        finally:
            client.kill()
            client.wait()
    finally:
        server.kill()
        server.wait()


def data_sockets(pid: int) -> list[dict[str, object]]:
    """The connections on which the client has sent a lot."""
    (process,) = mltcp_json("connections", pid)
    return [sock for sock in process["sockets"] if sock["bytes_sent"] > 100_000]


@pytest.mark.parametrize("streams", [1, 4])
def test_transfer_goes_on(streams: int, report: Report) -> None:
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed; run scripts/setup --train")
    with (
        bottleneck(1, Link(50_000_000, 60_000)) as network,
        loaded(),
        iperf3(network, "--parallel", str(streams)) as client,
    ):
        deadline = time.monotonic() + 30
        while len(data_sockets(client.pid)) < streams:
            assert client.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        before = {sock["cookie"]: sock["congestion_control"] for sock in data_sockets(client.pid)}
        done = mltcp_json("attach", client.pid, "--job", "iperf3", "--kind", "all")
        assert {change["outcome"] for change in done["changes"]} == {"switched"}
        assert {sock["congestion_control"] for sock in data_sockets(client.pid)} == {"mltcp"}
        sent = sum(int(str(sock["bytes_sent"])) for sock in data_sockets(client.pid))
        while sum(int(str(sock["bytes_sent"])) for sock in data_sockets(client.pid)) < sent + 10**7:
            assert client.poll() is None
            time.sleep(0.1)
        restored = mltcp_json("detach", "iperf3")
        assert {each["outcome"] for each in restored} == {"restored"}
        after = {sock["cookie"]: sock["congestion_control"] for sock in data_sockets(client.pid)}
        assert after == before
        output, _ = client.communicate(timeout=60)
        assert client.returncode == 0
        result = json.loads(output)
        assert "error" not in result
        rate = result["end"]["sum_received"]["bits_per_second"]
        # Less than was sent: at the end a full queue is still on its way.
        assert result["end"]["sum_received"]["bytes"] > 10**7
        report.line(f"iperf3, {streams} streams, attached and detached: {rate / 1e6:.1f} Mbit/s")
