# SPDX-License-Identifier: BSD-2-Clause
"""Ranks as processes on this host, with the test in the parent's place."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.emulator_processes import PATIENCE_S, Emulator

from mltcp_tools.lab.emulator.control import receive_message
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.emulator.patterns import KINDS, Pattern, connections

AT_ONCE_S = 0.05


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(("", 0))
        return [int(sock.getsockname()[1]) for sock in socks]


def messages(spec: JobSpec) -> list[dict[str, Any]]:
    """Return what each rank is told."""
    assert spec.pattern is not None
    ports = free_ports(spec.pattern.ranks)
    found = connections(spec.pattern.tasks(spec.bytes_per_iteration, spec.flows))
    return [
        {
            "event": "job",
            "name": "job",
            "spec": dataclasses.asdict(spec),
            "trace_s": 0.001,
            "rank": rank,
            "port": port,
            "routes": {
                number: {
                    "source": "127.0.0.1",
                    "destination": f"127.0.0.{to + 1}",
                    "port": ports[to],
                }
                for number, (source, to, _) in enumerate(found)
                if source == rank
            },
        }
        for rank, port in enumerate(ports)
    ]


def say(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


def hear(control: socket.socket) -> dict[str, Any]:
    """The next message but those about iterations; sockets that come along are closed."""
    while True:
        message, fds = receive_message(control)
        for fd in fds:
            socket.socket(fileno=fd).close()
        assert message is not None
        if message["event"] != "iteration":
            return message


@contextlib.contextmanager
def ranks(spec: JobSpec) -> Iterator[list[tuple[Emulator, socket.socket]]]:
    """The processes of all ranks, connected with each other."""
    with contextlib.ExitStack() as stack:
        running = []
        for message in messages(spec):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(ours).settimeout(PATIENCE_S)
            with theirs:
                process = Emulator("rank", control=theirs)
            running.append((stack.enter_context(process), ours))
            say(ours, **message)
        for _, control in running:
            assert hear(control)["event"] == "listening"
        for _, control in running:
            say(control, event="connect")
        for _, control in running:
            assert hear(control)["event"] == "connected"
        yield running


def start(running: list[tuple[Emulator, socket.socket]]) -> None:
    at = time.monotonic() + AT_ONCE_S
    for _, control in running:
        say(control, event="start", at=at)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pattern_runs_to_its_end(kind: str) -> None:
    pattern = Pattern(kind, 3, 2)
    spec = JobSpec(
        bytes_per_iteration=90_000, compute_s=0.02, iterations=3, flows=2, pattern=pattern
    )
    with ranks(spec) as running:
        start(running)
        for _, control in running:
            assert hear(control)["event"] == "done"
        documents = [json.loads(process.end()[1]) for process, _ in running]
    for document in documents:
        assert document["error"] is None
        assert [each["iteration"] for each in document["iterations"]] == [1, 2, 3]
    sent = sum(each["bytes"] for d in documents for each in d["iterations"])
    assert sent == 3 * sum(spec.shares(1))


def test_a_step_of_a_ring_waits_for_the_one_before() -> None:
    """A rank that is stopped holds up all others."""
    spec = JobSpec(
        bytes_per_iteration=30_000, compute_s=0.02, iterations=2, pattern=Pattern("ring", 3)
    )
    with ranks(spec) as running:
        *others, (last, its_control) = running
        start(others)  # the last one computes for as long as it isn't started
        time.sleep(0.3)
        for process, control in others:
            control.settimeout(0.1)
            with pytest.raises(TimeoutError):
                hear(control)
            assert process.process.poll() is None
            control.settimeout(PATIENCE_S)
        start([(last, its_control)])
        for _, control in running:
            assert hear(control)["event"] == "done"


def test_a_rank_that_dies_ends_the_others_with_a_sentence() -> None:
    spec = JobSpec(
        bytes_per_iteration=30_000, compute_s=0.05, iterations=1000, pattern=Pattern("ring", 3)
    )
    with ranks(spec) as running:
        start(running)
        (victim, _), *others = running
        victim.process.kill()
        said = [hear(control) for _, control in others]
        assert {each["event"] for each in said} == {"failed"}
        assert any("lost its connection" in each["error"] for each in said)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rank": 3}, "number 3 of"),
        ({"routes": {"0": {"source": "127.0.0.1"}}}, "'destination'"),
        ({"port": None}, "Not a possible rank"),
    ],
)
def test_an_impossible_rank_is_refused(changed: dict[str, Any], said: str) -> None:
    spec = JobSpec(
        bytes_per_iteration=30_000, compute_s=0.02, iterations=1, pattern=Pattern("ring", 3)
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = Emulator("rank", control=theirs)
        with process:
            say(ours, **(messages(spec)[0] | changed))
            code, _, complaint = process.end()
    assert code == 2
    assert said in complaint
