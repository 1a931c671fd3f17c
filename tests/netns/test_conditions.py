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
