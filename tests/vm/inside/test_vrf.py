# SPDX-License-Identifier: BSD-2-Clause
"""Connections of a VRF (virtual routing and forwarding), which many hosts' kernels have and this
project's usual test host lacks."""

from __future__ import annotations

import subprocess
import sys

from netns.connected import namespace

PEER = """
import socket, threading
with socket.create_server(("10.3.0.2", 5000)) as server:
    print(flush=True)
    while True:
        threading.Thread(target=server.accept()[0].makefile("rb").read, daemon=True).start()
"""
PROGRAM = """
import os, socket, threading, time
from mltcp_tools.live.attach.egress import egress_of, notices
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import sockets
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.observe.passive import PassiveObserver

senders = []
for device in ("vrf1", "e0"):
    senders.append(socket.socket())
    senders[-1].setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    senders[-1].connect(("10.3.0.2", 5000))

def burst():
    while True:
        time.sleep(0.25)
        for each in senders:
            each.sendall(bytes(300_000))

threading.Thread(target=burst, daemon=True).start()
seen = [each for each in sockets(process(os.getpid())) if each.state == "established"]
print(sorted(socket.if_indextoname(each.interface) for each in seen))
ways = egress_of(seen)
print(sorted((ways[each.cookie].interface, ways[each.cookie].of_address) for each in seen))
print(notices(seen, ways))
with Meter() as meter:
    learned = PassiveObserver(meter, lambda: None).learn({each.fd: [each] for each in seen}, 60.0)
print([{round(each.size / 300_000) for each in job} for job in learned.values()])
"""


def test_connections_of_a_vrf_are_found_and_measured() -> None:
    with namespace() as name, namespace() as other:
        for words in (
            "link add vrf1 type vrf table 10",
            f"link add e0 type veth peer name e1 netns {other}",
            "link set e0 master vrf1",
            "addr add 10.3.0.1/24 dev e0",
            "link set vrf1 up",
            "link set e0 up",
        ):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        for words in ("addr add 10.3.0.2/24 dev e1", "link set e1 up"):
            subprocess.run(["ip", "-n", other, *words.split()], check=True)
        enter = ["ip", "netns", "exec"]
        with subprocess.Popen(
            [*enter, other, sys.executable, "-c", PEER], stdout=subprocess.PIPE
        ) as peer:
            assert peer.stdout is not None
            peer.stdout.readline()
            command = [*enter, name, sys.executable, "-c", PROGRAM]
            bound, ways, said, learned = subprocess.check_output(command, text=True).splitlines()
            peer.kill()
    assert bound == "['e0', 'vrf1']"
    assert ways == "[('e0', 'e0'), ('e0', 'e0')]"
    assert said == "[]"
    assert learned == "[{1}, {1}]"
