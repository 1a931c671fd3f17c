# SPDX-License-Identifier: BSD-2-Clause
"""Hosts on this one: namespaces of networks and mounts, each with records and an agent of its own.

They share the kernel, and so what is loaded and which jobs it knows.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

_PREPARE = (
    "mkdir -p /run/mltcp && mount -t tmpfs -o mode=755 tmpfs /run/mltcp && ip link set lo up"
    " && echo $$ && exec sleep infinity"
)


class Apart:
    """One such host. address: at which this one reaches it. enter: what runs a command there."""

    def __init__(self, number: int, ahead_s: int) -> None:
        clock = ("--fork", "--kill-child", "--time", f"--monotonic={ahead_s}")
        self.process = subprocess.Popen(
            ["unshare", *clock, "--mount", "--net", "sh", "-c", _PREPARE],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.pid = pid = int(self.process.stdout.readline())
        self.enter = ("nsenter", f"--target={pid}", "--time", "--mount", "--net")
        # Another test's hosts may be there at the same time.
        link, net = f"mltcp{pid}"[:15], f"10.{200 + pid % 50}.{pid // 50 % 250}"
        self.address = f"{net}.{2 + number}"
        ip = ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0"]
        subprocess.run([*ip, "netns", str(pid)], check=True)
        route = f"addr add {net}.1/32 peer {self.address} dev {link}"
        subprocess.run(["ip", *route.split()], check=True)
        subprocess.run(["ip", "link", "set", link, "up"], check=True)
        back = f"addr add {self.address}/32 peer {net}.1 dev eth0"
        subprocess.run([*self.enter, "ip", *back.split()], check=True)
        subprocess.run([*self.enter, "ip", "link", "set", "eth0", "up"], check=True)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def apart(folder: Path, *names: str, apart_s: int = 0) -> Iterator[tuple[dict[str, Apart], str]]:
    """Hosts of these names, and the command that stands in for ssh: it takes a name.

    apart_s: by which each one's clock (CLOCK_MONOTONIC) is ahead of the one before.
    """
    hosts: dict[str, Apart] = {}
    try:
        for number, name in enumerate(names):
            hosts[name] = Apart(number, apart_s * number)
        ssh = folder / "ssh"
        cases = "".join(
            f'{name}) shift; exec {" ".join(each.enter)} "$@";;\n' for name, each in hosts.items()
        )
        ssh.write_text(f'#!/bin/sh\ncase $1 in\n{cases}esac\necho "no host $1" >&2\nexit 255\n')
        ssh.chmod(0o755)
        yield hosts, str(ssh)
    finally:
        for each in hosts.values():
            each.end()
