# SPDX-License-Identifier: BSD-2-Clause
"""Conditions that jobs run under, as counters tell it."""

from __future__ import annotations

import os
import socket
from dataclasses import replace

import pytest

from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import sockets
from mltcp_tools.live.observe import conditions
from mltcp_tools.live.observe.conditions import (
    Conditions,
    HostCounters,
    Own,
    Span,
    differences,
    path_of,
    read_counters,
    span,
)


@pytest.fixture(autouse=True)
def here_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entering other network namespaces takes root."""

    class Here:
        is_here, inode = True, os.stat("/proc/self/ns/net").st_ino

    monkeypatch.setattr(conditions, "in_each", lambda do: [(Here(), do())])


def counters(at_s: float, link: int, **changed: object) -> HostCounters:
    values = {"stolen": 0, "worked": 0, "ticks": 0, "jobs": frozenset()}
    return HostCounters(at_s, {"eth0": link}, **(values | changed))  # type: ignore[arg-type]


def test_a_span_is_the_difference_of_two_readings() -> None:
    before = counters(10.0, 1000, ticks=100, jobs=frozenset({"a", "b"}))
    after = counters(12.0, 5000, stolen=5, worked=50, ticks=200, jobs=frozenset({"b", "c"}))
    found = span(before, after)
    assert (found.length_s, found.links) == (2.0, {"eth0": 2000.0})
    assert (found.stolen, found.worked) == (0.05, 0.5)
    assert (found.came, found.went) == ({"c"}, {"a"})


def test_what_the_jobs_send_themselves_is_no_other_traffic() -> None:
    slow = span(counters(0.0, 0), counters(1.0, 1_050_000))
    fast = span(counters(0.0, 0), counters(1.0, 1_260_000))
    assert differences(slow, fast, (Own(1e6, 1e6), Own(1.2e6, 1.2e6))) == []
    (said,) = differences(slow, fast, (Own(1e6, 1e6), Own(1e6, 1e6)))
    assert "changed (8.4 Mbit/s and 10.08 Mbit/s with the jobs' own, which changed by +0%)" in said


def test_what_the_jobs_send_again_is_no_other_traffic() -> None:
    """Two turns of DDP over a queue of 30 kB: before it the links carry what it drops, too."""
    own = Own(10.55e6, 12.84e6), Own(12.86e6, 13.02e6)
    before, behind, between = "to-router", "bottleneck", "to-receiver"
    cubic = read({before: 13.65e6, behind: 11.40e6, between: 6.80e6})
    mltcp = read({before: 13.89e6, behind: 13.72e6, between: 6.95e6})
    assert differences(cubic, mltcp, own) == []
    assert differences(mltcp, cubic, own[::-1]) == []
    for name, rate in ((before, 10.5e6), (before, 18.0e6), (behind, 10.2e6), (behind, 15.2e6)):
        (said,) = differences(cubic, replace(mltcp, links=mltcp.links | {name: rate}), own)
        assert f"Other traffic on {name} changed" in said


def read(links: dict[str, float]) -> Span:
    """A second in which the interfaces had so many bytes."""
    nothing = HostCounters(0.0, {}, 0, 0, 0, frozenset())
    moved = {name: round(size) for name, size in links.items()}
    return span(nothing, replace(nothing, at_s=1.0, links=moved))


def test_an_interface_that_comes_with_traffic_is_other_traffic() -> None:
    alone = span(counters(0.0, 0), counters(1.0, 10**6))
    more = HostCounters(1.0, {"eth0": 10**6, "veth1": 10**6}, 0, 0, 0, frozenset())
    (said,) = differences(alone, span(counters(0.0, 0), more), (Own(1e6, 1e6), Own(1e6, 1e6)))
    assert "veth1" in said


def test_only_interfaces_of_the_jobs_count_where_these_are_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
        with sender, peer:
            own = [each for each in sockets(process(os.getpid())) if each.remote[1]]
            path = path_of(own)
            assert path == {(own[0].netns, "lo")}
            assert path_of([replace(own[0], netns=1)]) == frozenset()
            assert path_of([replace(own[0], local=("192.0.2.1", 1))]) == frozenset()
    there = read_counters(())
    there_alone = read_counters((), path)
    assert list(there_alone.links) == ["lo"]
    assert there.links["lo"] <= there_alone.links["lo"]
    gone = frozenset({(own[0].netns, "gone0"), (1, "lo")})
    assert read_counters((), gone).links == {"gone0": 0, "lo elsewhere": 0}


def test_recording_names_busiest_connections_and_past_jobs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
        names = ["a"]
        with sender, peer:
            kept = Conditions(lambda: names)
            sender.sendall(bytes(500_000))
            received = 0
            while received < 500_000:
                received += len(peer.recv(1 << 16))
            names[:] = ["a", "passing"]
            kept.look()
            names[:] = ["a"]
            found = kept.document(set(), 1_000_000)
    assert found["jobs"] == ["a", "passing"]
    assert (found["came"], found["went"]) == (["passing"], ["passing"])
    assert round(found["links"]["lo"] * found["length_s"]) >= 500_000
    assert found["own"] * found["length_s"] == pytest.approx(1_000_000)
    moved = [each["bytes_per_s"] * found["length_s"] for each in found["others"]]
    # Sent by one end, received by the other; a rate times its time may be short by its last bit.
    assert round(sum(moved)) >= 1_000_000
