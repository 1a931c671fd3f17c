# SPDX-License-Identifier: BSD-2-Clause
"""A host's part in a trial across hosts: it does what `multihost.py` asks, over stdin and stdout.

JSON objects, one a line; each request is answered by one of the same event, or by `failed`:

    <- {"event": "begin", "version": V, "jobs": {NAME: [TARGET, ...]}, "cc": NAME, "patience_s": s}
    -> {"event": "begin", "jobs": [NAME, ...]: those that this host has, "base": names}
    <- {"event": "learn"}
    -> {"event": "learn", "now_s": s, "iterations": [[JOB, Iteration's fields...]...]}
    <- {"event": "switch", "variant": VARIANT}
    <- {"event": "period"}: the next period begins, the first is 0
    <- {"event": "end", "period": n}
    -> {..., "notes": [SENTENCE...], "retransmits": {JOB: segments}}
    <- {"event": "unlike", "periods": [n, n]}
    -> {..., "notes": [SENTENCE...]}

Unasked, once it has learned: {"event": "iterations"} as with `learn`. Times are of this host's
clock, which needn't agree with any other. Both sides say {"event": "alive"} once a second; where
this one hears nothing for long, or stdin ends, it puts everything back. Its lease does so when it
is killed.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple
from typing import Any

from mltcp_tools import __version__
from mltcp_tools.base.errors import HostError, MltcpError, UsageError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.host.leases import leased
from mltcp_tools.kernel.host.peers import Lines, answer
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.attach.switch import require_ready
from mltcp_tools.live.attach.targets import sockets_to_attach
from mltcp_tools.live.observe.iteration_detector import Iteration
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.trial.adapters import LiveWorld
from mltcp_tools.live.trial.rollback import SILENCE_S, Lease, settle
from mltcp_tools.live.trial.subjects import find_subjects, original_names
from mltcp_tools.live.trial.surroundings import Interrupted, JobEnded

ALIVE_S = 1.0
"""Between two signs of life."""


class _Requests:
    """The requests, as they come; the other side's signs of life, and ours."""

    def __init__(self, signals: Signals) -> None:
        self._lines = Lines(sys.stdin.fileno())
        self._signals = signals
        self._waiting: list[dict[str, Any]] = []
        self._heard_s = time.monotonic()
        self._said_s = 0.0

    def gone(self) -> bool:
        """Return whether nobody asks any more; called often, and never waits."""
        now_s = time.monotonic()
        if now_s - self._said_s >= ALIVE_S:
            self._said_s = now_s
            answer("alive")
        if select.select([sys.stdin], [], [], 0)[0]:
            messages = self._lines.read()
            if messages is None:
                return True
            self._heard_s = now_s
            self._waiting += [each for each in messages if each["event"] != "alive"]
        return self._signals.has_come() or now_s - self._heard_s > SILENCE_S

    def take(self) -> dict[str, Any] | None:
        """The next request, None where there is none yet. Interrupted where all is over."""
        if self.gone():
            raise Interrupted
        return self._waiting.pop(0) if self._waiting else None

    def wait(self) -> dict[str, Any]:
        """The next request, once it is there; it waits for a moment at a time."""
        while (request := self.take()) is None:
            select.select([sys.stdin], [], [], ALIVE_S / 2)
        return request


def _say_iterations(event: str, iterations: Sequence[tuple[str, Iteration]]) -> None:
    told = [[job, *astuple(iteration)] for job, iteration in iterations]
    answer(event, now_s=time.monotonic(), iterations=told)


class _Part:
    """The jobs of this host, which a trial switches."""

    def __init__(self, world: LiveWorld, lease: Lease, requests: _Requests) -> None:
        self._world, self._lease, self._requests = world, lease, requests
        self._watching = False
        self._handlers: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "learn": self._learn,
            "switch": self._switch,
            "period": self._period,
            "end": self._end,
            "unlike": self._unlike,
        }

    def serve(self) -> None:
        """Do what is asked for, until Interrupted."""
        while True:
            request = self._requests.take()
            try:
                if request is not None:
                    self._handlers[request["event"]](request)
                elif self._watching:
                    if iterations := self._world.wait():
                        _say_iterations("iterations", iterations)
                else:
                    self._lease.renew()
                    select.select([sys.stdin], [], [], ALIVE_S / 2)
            except (JobEnded, MltcpError) as error:
                self._watching = False
                answer("failed", reason=str(error), ended=isinstance(error, JobEnded))

    def _learn(self, request: dict[str, Any]) -> None:
        seen = self._world.learn()
        self._watching = True
        _say_iterations(
            "learn",
            [(job, iteration) for job, iterations in seen.items() for iteration in iterations],
        )

    def _switch(self, request: dict[str, Any]) -> None:
        self._world.switch(request["variant"])
        answer("switch")

    def _period(self, request: dict[str, Any]) -> None:
        self._world.begin_period()
        answer("period")

    def _end(self, request: dict[str, Any]) -> None:
        counted = self._world.end_period(request["period"])
        answer("end", notes=counted.notes, retransmits=counted.retransmits)

    def _unlike(self, request: dict[str, Any]) -> None:
        answer("unlike", notes=self._world.unlike(*request["periods"]))


def _here(jobs: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Those of the jobs that this host has connections of."""
    attached = {state.job.name for state in StateFiles().read()}

    def is_here(name: str, words: Sequence[str]) -> bool:
        if not words or name in attached:
            return name in attached
        try:
            return bool(sockets_to_attach(Target.parse(words), (), stays_here=True)[0])
        except (UsageError, HostError):
            raise
        except MltcpError:  # no process matches
            return False

    return {name: words for name, words in jobs.items() if is_here(name, words)}


def take_part(backend: Backend) -> None:
    """Take part in one trial, until whoever asks goes. Everything is put back when this returns.

    Raises MltcpError where this host can't take part, or not everything could be put back.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        requests = _Requests(signals)
        try:
            hello = requests.wait()
            if hello["version"] != __version__:
                raise HostError(
                    f"this host has mltcp-tools {__version__} and the trial {hello['version']};"
                    " install the same version on all."
                )
            require_ready(hello["cc"], backend)
            settle()
            subjects = find_subjects(_here(hello["jobs"]))
            if not subjects:
                raise MltcpError("none of the jobs has a connection on this host.")
            stack.enter_context(leased("mltcp trial", backend.name))
            meter = stack.enter_context(Meter())
            lease = stack.enter_context(Lease(subjects))
            world = LiveWorld(
                subjects, hello["cc"], backend, lease, meter, requests.gone, hello["patience_s"]
            )
            answer("begin", jobs=[each.name for each in subjects], base=original_names(subjects))
            _Part(world, lease, requests).serve()
        except (Interrupted, BrokenPipeError):
            return
