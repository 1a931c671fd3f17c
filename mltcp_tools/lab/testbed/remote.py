# SPDX-License-Identifier: BSD-2-Clause
"""The agent: what a run across machines starts on each of them, by ssh.

It and the run (`multihost.py`) talk in JSON objects, one a line, over the agent's stdin and stdout:

    <- {"event": "hello", "version": V, "experiment": YAML, "address": the receiver's,
        "backend": name, "role": "receiver" or "sender", "number": from 0, "senders": how many}
    -> {"event": "ready", "machine": facts for the run's records}

then, on a sender, for every group of jobs that run at once:

    <- {"event": "run", "variant": name, "repetition": n, "group": n, "trace_ms": ms}
    -> {"event": "connected"}: the jobs of this sender are connected and tagged
    <- {"event": "clock"} -> {"event": "clock", "now": s}, any number of times
    <- {"event": "start", "at": s}
    -> {"event": "iteration", "job": name} after each
    -> {"event": "done", "start": s, "duration": s, "cpu_busy": share, "documents": {job: result},
        "events": [[job, flow, IterationEvent's fields]], "warning": text, "failure": text}

Times are seconds of this machine's CLOCK_MONOTONIC. Anything that arrives while jobs run ends them
early. When stdin ends, so does the agent, and it takes back whatever it did to the machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import select
import selectors
import sys
import time
from collections.abc import Sequence
from typing import Any

from mltcp_tools import __version__
from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.kernel.environment import sysctls
from mltcp_tools.kernel.host.peers import Lines, answer
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import ClientTask, tasks_of
from mltcp_tools.lab.testbed.emulators import (
    READY_S,
    Emulator,
    EmulatorHosts,
    Emulators,
    MeasuredJobs,
    server_arguments,
)
from mltcp_tools.lab.testbed.leftovers import LOCKS, RunLock, require_privileges
from mltcp_tools.lab.testbed.namespaces import enabled_offloads, sysctls_set
from mltcp_tools.lab.testbed.network import local_end, sysctls_of
from mltcp_tools.lab.testbed.treatments import Sessions, Treatments
from mltcp_tools.lab.testbed.treatments.base import Context


class RunGone(MltcpError):
    """The run wants no more of this agent."""


class Requests:
    """The run's messages. Also what ends jobs early (`emulators.EarlyEnd`): any message does."""

    def __init__(self) -> None:
        self._lines = Lines(self.fileno())
        self._messages: list[dict[str, Any]] = []
        self._poll = select.poll()
        self._poll.register(self)

    def fileno(self) -> int:
        """Readable when a message, or the end, has come."""
        return sys.stdin.fileno()

    def check(self) -> None:
        """Raise Stopped if a message, or the end, has come."""
        if self._messages or self._poll.poll(0):
            raise RunGone("The run was ended from elsewhere.")

    def read(self) -> dict[str, Any]:
        """Wait for the next message; Stopped where there is none any more."""
        while not self._messages:
            messages = self._lines.read()
            if messages is None:
                raise RunGone("The run has gone.")
            self._messages += messages
        return self._messages.pop(0)


def run_agent() -> None:
    """Serve one run, until it closes stdin. Raises MltcpError where this machine can't."""
    requests = Requests()
    with contextlib.suppress(RunGone):
        hello = requests.read()
        if hello["version"] != __version__:
            raise HostError(
                f"This machine has mltcp-tools {__version__} and the run {hello['version']};"
                " install the same version on all."
            )
        require_privileges()
        experiment = parse_experiment(hello["experiment"], "the experiment")
        with sysctls_set(sysctls_of(experiment.link, experiment.sysctls)):
            if hello["role"] == "receiver":
                _serve(requests, hello["address"])
            else:
                _Sender(requests, experiment, hello).serve()


def _serve(requests: Requests, address: str) -> None:
    """Run the server of all jobs until the run ends."""
    server = Emulator("the receiver", None, server_arguments(address))
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(requests, selectors.EVENT_READ)
            selector.register(server.control, selectors.EVENT_READ)
            while True:
                ready = selector.select(READY_S)
                if any(key.fileobj is requests for key, _ in ready):
                    return
                if ready and not server.control.recv(65536):
                    raise MltcpError(server.complaint())
                if ready:  # all it ever says is that it listens
                    answer("ready", machine=_facts())
    finally:
        server.close()


class _Sender:
    """The jobs of one sender."""

    def __init__(self, requests: Requests, experiment: Experiment, hello: dict[str, Any]) -> None:
        self._requests = requests
        self._experiment = experiment
        self._hello = hello
        self._warnings: list[str] = []
        self._lock = RunLock()
        self._facts: dict[str, Any] = {}
        self._treatments = Treatments(
            Context(
                experiment,
                None,
                hello["backend"],
                LOCKS,
                lambda: self._lock.id,
                self._lock.job_id,
                self._warnings.append,
                self._warnings.append,
                self._facts.update,
            )
        )

    def serve(self) -> None:
        """Run what is asked for until the run ends; then say on stderr what is left to be said."""
        interface, address = local_end(self._hello["address"])
        facts = _facts() | {"address": address, "offloads": enabled_offloads(interface)}
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: sys.stderr.writelines(f"{line}\n" for line in self._warnings))
            stack.enter_context(self._lock)
            self._treatments.load(stack)
            answer("ready", machine=facts | self._facts)
            while True:
                self._run(self._requests.read())

    def _run(self, request: dict[str, Any]) -> None:
        variant, repetition = self._experiment.variant(request["variant"]), request["repetition"]
        number, senders = self._hello["number"], self._hello["senders"]
        groups = tasks_of(self._experiment, variant, repetition, request["trace_ms"])
        tasks = [
            dataclasses.replace(task, sender=0)
            for task in groups[request["group"]]
            if task.sender % senders == number
        ]
        with self._treatments.begin(variant) as sessions:
            tasks = [sessions.adapt(task) for task in tasks]
            measured = self._measure(tasks, sessions)
        self._warnings += sessions.warnings
        answer(
            "done",
            start=measured.start,
            duration=measured.duration,
            cpu_busy=measured.cpu_busy,
            documents=measured.documents,
            events=[[job, flow, dataclasses.asdict(event)] for job, flow, event in sessions.events],
            warning=" ".join(self._warnings),
            failure=str(measured.failure or ""),
        )
        self._warnings.clear()

    def _measure(self, tasks: Sequence[ClientTask], sessions: Sessions) -> MeasuredJobs:
        place = EmulatorHosts([None], None, self._hello["address"], served=True)
        with Emulators(
            place,
            self._requests,
            prepare=sessions.connected,
            on_iteration=lambda job: answer("iteration", job=job),
        ) as emulators:
            return emulators.run(tasks, start=self._start)

    def _start(self) -> float:
        """Say that the jobs are ready, and let the run set the instant at which they start."""
        answer("connected")
        while (message := self._requests.read())["event"] == "clock":
            answer("clock", now=time.monotonic())
        if message["event"] != "start":
            raise RunGone("The run was ended from elsewhere.")
        return float(message["at"])


def _facts() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "version": __version__,
        "cpus": len(os.sched_getaffinity(0)),
        "sysctls": sysctls(),
    }
