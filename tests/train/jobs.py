# SPDX-License-Identifier: BSD-2-Clause
"""Training jobs for tests: their processes, and what they print."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.live.attach.pidfd import borrowed, set_congestion_control
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.targets import look

SCRIPTS = Path(__file__).parent
PARAMETER_BYTES = 4


def gradient_bytes(width: int) -> int:
    """Bytes of the gradients of ddp.py's model."""
    return 2 * (width * width + width) * PARAMETER_BYTES


@dataclass(frozen=True)
class Place:
    """The place where a rank runs. namespace: None for this one. interface: what Gloo or NCCL is to
    use."""

    namespace: str | None
    interface: str


@dataclass
class Rank:
    """A running rank.

    computed_s, ends_s: when its iterations had computed, and ended (CLOCK_MONOTONIC). losses:
    exactly, as hexadecimals.
    """

    process: subprocess.Popen[str]
    ready: threading.Event = field(default_factory=threading.Event)
    computed_s: list[float] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            if words == ["ready"]:
                self.ready.set()
            elif len(words) == 4 and words[0] == str(len(self.losses)):
                self.computed_s.append(float(words[1]))
                self.ends_s.append(float(words[2]))
                self.losses.append(words[3])
        self.ready.set()

    def durations_s(self, since_s: float = 0.0, until_s: float = float("inf")) -> list[float]:
        """Return how long the iterations took that began and ended between two points in time."""
        return [
            end - begin
            for begin, end in zip(self.ends_s, self.ends_s[1:], strict=False)
            if begin >= since_s and end <= until_s
        ]

    def wait_for(self, iterations: int, seconds: float = 400.0) -> None:
        """Wait until so many iterations have ended."""
        deadline = time.monotonic() + seconds
        while len(self.losses) < iterations:
            assert self.process.poll() is None, f"the training ended: {self.process.returncode}"
            assert time.monotonic() < deadline, f"{len(self.losses)} of {iterations} iterations"
            time.sleep(0.05)


@contextlib.contextmanager
def training(
    places: list[Place],
    address: str,
    port: int,
    iterations: int,
    width: int = 256,
    idle_s: float = 0.1,
    jitter: float = 0.0,
    program: Sequence[str] = ("ddp.py",),
    device: str = "cpu",
    **options: Any,
) -> Iterator[list[Rank]]:
    """A job of a rank per place, that meets at an address of the first one. Ended afterwards.

    program: the rank's script in this folder, and what goes before its other arguments. device:
    `cpu` for Gloo, or `cuda` for NCCL on a GPU that all ranks share: told to be on different hosts
    (NCCL_HOSTID), they don't notice, and speak over sockets.
    """
    script, *first = program
    ranks: list[Rank] = []
    readers = []
    try:
        for number, place in enumerate(places):
            environment = os.environ | {
                "MASTER_ADDR": address,
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": place.interface,
                "NCCL_SOCKET_IFNAME": place.interface,
                "NCCL_IB_DISABLE": "1",
                "NCCL_HOSTID": f"{port}-{number}",
                "DEVICE": device,
            }
            numbers = (number, len(places), iterations, width, idle_s, jitter)
            with inside(place.namespace):
                process = subprocess.Popen(
                    [sys.executable, str(SCRIPTS / script), *first, *map(str, numbers)],
                    stdout=subprocess.PIPE,
                    env=environment,
                    text=True,
                    **options,
                )
            ranks.append(Rank(process))
            readers.append(threading.Thread(target=ranks[-1].read, daemon=True))
            readers[-1].start()
        for rank in ranks:
            assert rank.ready.wait(300)
        yield ranks
    finally:
        for rank in ranks:
            if rank.process.poll() is None:
                rank.process.kill()
            rank.process.wait()
        for reader in readers:
            reader.join()
        for rank in ranks:
            assert rank.process.stdout is not None
            rank.process.stdout.close()


def wait_for_more(ranks: Iterable[Rank], iterations: int) -> float:
    """Wait until each has had so many iterations more; when that is (CLOCK_MONOTONIC)."""
    for rank, goal in [(rank, len(rank.losses) + iterations) for rank in ranks]:
        rank.wait_for(goal)
    return time.monotonic()


def switch(ranks: Iterable[Rank], cc: str) -> None:
    """Give the ranks' connections that carry data a congestion control."""
    seen, _ = look(Target(pids=tuple(rank.pid for rank in ranks)))
    for classified in (classified for each in seen for classified in each.sockets):
        if classified.carries_data:
            sock = classified.socket
            holder = sock.process
            with borrowed(holder.pid, holder.start_ticks, sock.fd, sock.cookie) as found:
                set_congestion_control(found, cc)


def finish(ranks: list[Rank], seconds: float = 400.0) -> None:
    """Wait until a job has ended by itself, and without an error."""
    for rank in ranks:
        assert rank.process.wait(seconds) == 0
