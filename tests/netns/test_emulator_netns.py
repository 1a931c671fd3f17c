# SPDX-License-Identifier: BSD-2-Clause
"""The emulator between two namespaces: congestion control per socket, and a peer that disappears.

    client 10.88.0.1 -- veth -- 10.88.0.2 server

The link is slow (tbf), so that a burst lasts long enough to be cut off in its middle.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.emulator_processes import Emulator

from mltcp_tools.kernel.host.facts import available_congestion_controls

CLIENT, SERVER = "10.88.0.1", "10.88.0.2"
PORT = 5301
_numbers = itertools.count()


@dataclass(frozen=True)
class Link:
    """The two namespaces' names."""

    client: str
    server: str

    def emulator(self, namespace: str, *arguments: str) -> Emulator:
        return Emulator(*arguments, prefix=["ip", "netns", "exec", namespace])

    def run_server(self) -> Emulator:
        return self.emulator(self.server, "server", f"--port={PORT}")

    def run_client(self, *options: str) -> Emulator:
        return self.emulator(self.client, "client", SERVER, f"--port={PORT}", *options)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture
def link() -> Iterator[Link]:
    number = next(_numbers)
    names = Link(f"emuc-{os.getpid()}-{number}", f"emus-{os.getpid()}-{number}")
    try:
        ip("netns", "add", names.client)
        ip("netns", "add", names.server)
        ip("link", "add", "up0", "netns", names.client, "type", "veth",
           "peer", "name", "up0", "netns", names.server)  # fmt: skip
        for namespace, address in ((names.client, CLIENT), (names.server, SERVER)):
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", "up0")
            ip("-n", namespace, "link", "set", "up0", "up")
            shape = "rate 20mbit burst 20k limit 30k".split()  # noqa: SIM905
            subprocess.run(
                ["tc", "-n", namespace, "qdisc", "add", "dev", "up0", "root", "tbf", *shape],
                check=True,
            )
        yield names
    finally:
        for namespace in (names.client, names.server):
            subprocess.run(["ip", "netns", "delete", namespace], check=False)


def test_restricted_congestion_control_without_privilege() -> None:
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    restricted = [cc for cc in available_congestion_controls() if cc not in allowed]
    if not restricted:
        pytest.skip("this kernel lets everybody use every congestion control")
    code = (
        "import os, socket\n"
        "from mltcp_tools.lab.emulator.sockets import set_congestion_control\n"
        "os.setuid(65534)\n"
        f"set_congestion_control(socket.socket(), {restricted[0]!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "HostError: Congestion control" in done.stderr
    assert "is restricted on this host; run as root, or add it" in done.stderr


@pytest.mark.parametrize(
    ("compute", "size"), [("1ms", "2MB"), ("30s", "20kB")], ids=["in a burst", "in compute"]
)
def test_link_down(link: Link, compute: str, size: str) -> None:
    with link.run_server() as server:
        server.port()
        with link.run_client(f"--bytes={size}", f"--compute={compute}") as client:
            server.wait_for("connected")
            time.sleep(0.2)
            ip("-n", link.server, "link", "set", "up0", "down")
            code, _, err = client.end()
    assert code == 1
    assert "disappeared in iteration" in err
    assert len(err.splitlines()) == 1


def test_client_vanishes(link: Link) -> None:
    with link.emulator(link.server, "server", f"--port={PORT}", "--timeout=2s") as server:
        server.port()
        with link.run_client("--bytes=2MB", "--compute=1ms") as client:
            server.wait_for("connected")
            ip("-n", link.client, "link", "set", "up0", "down")
            client.process.kill()
            server.wait_for(rf"{CLIENT} port \d+ lost \(.*\)")
        ip("-n", link.client, "link", "set", "up0", "up")
        with link.run_client("--bytes=20kB", "--compute=1ms", "--iterations=2") as client:
            assert client.end()[0] == 0
