# SPDX-License-Identifier: BSD-2-Clause
"""Traffic counts where it passes the interfaces that a job's connections pass, and nowhere else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

from netns.apart import apart
from netns.connected import namespace
from netns.trainings import training

from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import sockets_of
from mltcp_tools.live.observe.conditions import path_of, read_counters

CONNECT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    print("connected", flush=True)
    while connection.recv(1 << 16):
        pass
"""


def test_a_stranger_in_another_namespace_is_not_on_the_path(tmp_path: Path) -> None:
    with apart(tmp_path, "job", "stranger") as (hosts, _):
        here = hosts["job"].address.rpartition(".")[0] + ".1"
        netns = os.stat(f"/proc/{hosts['job'].pid}/ns/net").st_ino
        with socket.create_server((here, 0)) as listener:
            port = listener.getsockname()[1]
            command = [*hosts["job"].enter, sys.executable, "-c", CONNECT, here, str(port)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as job:
                assert job.stdout is not None
                assert job.stdout.readline() == b"connected\n"
                peer, _ = listener.accept()
                with peer:
                    path = path_of(sockets_of([process(job.pid)])[0])
                    before = read_counters((), path).links
                    mark = f"mark-{uuid.uuid4().hex}"
                    with training(mark, "cc=reno", through=hosts["stranger"].enter) as stranger:
                        stranger.ask("connect")
                        stranger.ask("train 1 0 3000000")
                    between = read_counters((), path).links
                    peer.sendall(bytes(1_000_000))
                    peer.shutdown(socket.SHUT_WR)
                    job.wait(60)
                after = read_counters((), path).links
    veth = f"mltcp{hosts['job'].pid}"[:15]
    assert {name for inode, name in path if inode == netns} == {"eth0"}
    assert veth in {name for inode, name in path if inode != netns}
    for name in (veth, "eth0 elsewhere"):
        assert between[name] - before[name] < 100_000
        assert after[name] - between[name] > 1_000_000


EGRESS = """
import os, socket, sys
from mltcp_tools.live.attach.egress import egress_of, notices
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import sockets
from mltcp_tools.live.observe.meter import Meter

def connected(own, peer, mark, scope=0):
    family = socket.AF_INET6 if scope else socket.AF_INET
    listener, sender = socket.socket(family), socket.socket(family)
    listener.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT
    listener.bind((peer, 5000, 0, scope) if scope else (peer, 5000))
    listener.listen()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    sender.bind((own, 0, 0, scope) if scope else (own, 0))
    sender.connect(listener.getsockname())
    return sender, listener.accept()[0]

kept = [connected("10.1.0.1", "10.2.0.9", 5), connected("fe80::1", "fe80::1", 0, 1)]
seen = [each for each in sockets(process(os.getpid())) if each.state == "established"]
ways = egress_of(seen)
print(sorted((ways[each.cookie].interface, ways[each.cookie].of_address) for each in seen))
print(notices(seen, ways))
with Meter() as meter:
    print(len(meter.read(seen)))
"""


def test_unexpected_ways_of_connections_are_noticed() -> None:
    """Two interfaces; a rule leads what is marked to a process of this host, as a sidecar has it;
    a connection between link-local addresses."""
    with namespace() as name:
        for words in (
            "link set lo up",
            "addr add fe80::1/64 dev lo nodad",
            *("link add v0 type veth peer name v1", "link add w0 type veth peer name w1"),
            *("addr add 10.1.0.1/24 dev v0", "addr add 10.2.0.1/24 dev w0"),
            *(f"link set {each} up" for each in ("v0", "v1", "w0", "w1")),
            "rule add fwmark 5 table 100",
            "route add local 10.2.0.9/32 dev lo table 100",
        ):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        command = ["ip", "netns", "exec", name, sys.executable, "-c", EGRESS]
        ways, said, found = subprocess.check_output(command, text=True).splitlines()
    assert ways == "[('', ''), ('lo', 'lo'), ('lo', 'lo'), ('w0', 'v0')]"
    assert "from 10.1.0.1, the address of v0, leave by w0" in said
    assert "to 10.2.0.9 end at process" in said
    assert said.count("Connections of process") == 2
    assert found == "4"
