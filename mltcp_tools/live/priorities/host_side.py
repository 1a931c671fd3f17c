# SPDX-License-Identifier: BSD-2-Clause
"""A host whose jobs a controller elsewhere orders (coordinator.py): the host's end of their
connection.

The two talk in JSON objects, one a line, over this process's stdin and stdout:

    -> {"jobs": {id: [bytes, gap_ns, ports]},
        "bursts": {id: [sent, ns since it began, ns since its last packet, before, number, active]}}
       with each burst that begins or ends, and a hundred times a second
    <- {"levels": {id: level}}, as often

Each such line is a sign of life. When none has come for half a second the programs treat all jobs
alike, and so they do at once when stdin ends.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mltcp_tools.kernel.host.peers import Lines
from mltcp_tools.live.priorities.controller import LEAST_S
from mltcp_tools.live.priorities.maps import KnownJob, Maps, PriorityBurst


def serve_maps(folder: Path, incoming: int, outgoing: int, stopped: Callable[[], bool]) -> None:
    """Serve the maps pinned in `folder` until `incoming` ends or `stopped` says so.

    incoming, outgoing: file descriptors.
    """
    with Maps(folder) as maps:
        reader = maps.reader()
        lines = Lines(incoming)
        due_s = 0.0
        try:
            while not stopped():
                if (now_s := time.monotonic()) >= due_s:
                    _say(outgoing, state_of(maps))
                    due_s = now_s + LEAST_S
                left_s = max(0.0, due_s - now_s)
                ready, _, _ = select.select([incoming, reader.fileno()], [], [], left_s)
                if reader.fileno() in ready:
                    due_s = 0.0
                if incoming in ready:
                    heard = lines.read()
                    if heard is None:
                        return
                    for each in heard:
                        _obey(maps, each)
                reader.poll(0)
        except BrokenPipeError:
            return  # the controller has gone
        finally:
            maps.die()
            reader.close()


def _obey(maps: Maps, message: dict[str, Any]) -> None:
    for job, level in message["levels"].items():
        maps.set_level(int(job), level)
    maps.live()


def _say(descriptor: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def state_of(maps: Maps) -> dict[str, Any]:
    """The jobs and their bursts, in ages: each machine has its own clock."""
    now, jobs = time.monotonic_ns(), maps.jobs()
    bursts = {job: burst for job in jobs if (burst := maps.burst(job)) is not None}
    return {
        "jobs": {job: [known.bytes, known.gap_ns, known.ports] for job, known in jobs.items()},
        "bursts": {
            job: [
                *(burst.sent, now - burst.began_ns, now - burst.last_ns),
                *(burst.before, burst.number),
                burst.active and now - burst.last_ns <= jobs[job].gap_ns,
            ]
            for job, burst in bursts.items()
        },
    }


def state_from(
    message: dict[str, Any], now_ns: int
) -> tuple[dict[int, KnownJob], dict[int, PriorityBurst]]:
    """Return the state that state_of() made a message of, on the clock that says now_ns."""
    jobs = {
        int(job): KnownJob(size, gap_ns, tuple(ports))
        for job, (size, gap_ns, ports) in message["jobs"].items()
    }
    bursts = {
        int(job): PriorityBurst(sent, now_ns - began, now_ns - last, before, number, bool(active))
        for job, (sent, began, last, before, number, active) in message["bursts"].items()
    }
    return jobs, bursts
