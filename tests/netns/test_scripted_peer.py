# SPDX-License-Identifier: BSD-2-Clause
"""A flow's answers to ACKs, losses and delays, several in a row, which a scripted peer sends."""

from __future__ import annotations

import contextlib
import functools
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from support.scripted_peer import LOSS, MSS, RECOVERY, Peer, scripted_peer

from mltcp_tools.kernel.backends.base import Backend, Flow, Job, JobParams

backend = backend_fixture(fresh_and_loaded)

EMPTY_S, SHORT_S, LONG_S, FULL_S = 0.1, 0.13, 0.165, 0.18
"""Round trips over a path with an empty queue, a short one, a long one, and a full one."""

BURST = 600_000
BEGINNING = JobParams(
    burst_bytes=1000 * BURST,
    gap_s=30,
    slope=0,
    intercept=1,
    mechanisms=("increase", "yield"),
)
"""Of a flow at the beginning of its iteration, which yields for as long as a test takes. F is 1, so
that what it grows by is either the base's increase or what it takes back."""

NAMES = pytest.mark.parametrize("name", ["mltcp", "mltcp_cubic"])


def flow_of(backend: Backend) -> Flow:
    (flow,) = (each for each in backend.flows() if each.job_id)
    return flow


@contextlib.contextmanager
def started(
    backend: Backend, name: str, params: JobParams, size: int = 10 * BURST
) -> Iterator[Peer]:
    """A flow that sends so many bytes, has found the queue full by a loss, and has recovered."""
    backend.set_job(Job(1, "scripted", params))
    with scripted_peer(name, EMPTY_S) as peer:
        backend.tag(peer.sender.fileno(), 1)
        peer.send(size)
        for _ in range(2):
            peer.round_trip(EMPTY_S)
        peer.round_trip(FULL_S)
        peer.round_trip(FULL_S, lose=[0])
        while peer.info().ca_state == RECOVERY:
            peer.round_trip(FULL_S)
        yield peer


@contextlib.contextmanager
def yielded(backend: Backend, name: str, share: float = 1 / 2) -> Iterator[tuple[Peer, int]]:
    """A flow that has at most that share left of its window, and that window, segments."""
    with started(backend, name, BEGINNING) as peer:
        full = peer.info().ssthresh
        while peer.info().cwnd > share * full:
            peer.round_trip(FULL_S)
        assert flow_of(backend).yields
        yield peer, full


@NAMES
def test_what_was_yielded_comes_back_in_slow_start(backend: Backend, name: str) -> None:
    with yielded(backend, name, 1 / 5) as (peer, full):
        peer.round_trip(EMPTY_S)  # whose ACKs may still be about the long queue
        began_s, windows = time.monotonic(), [peer.info().cwnd]
        while windows[-1] < full * 3 / 4:
            peer.round_trip(EMPTY_S)
            windows.append(peer.info().cwnd)
            assert len(windows) < 100, f"the flow takes nothing back: {windows}"
        trips = 1 + (time.monotonic() - began_s) / EMPTY_S  # on a busy host fewer, of longer ones
        assert windows[-1] <= (windows[0] + 2) * 2**trips, windows


@NAMES
def test_a_loss_cuts_a_window_that_has_yielded(backend: Backend, name: str) -> None:
    with yielded(backend, name) as (peer, _):
        before = peer.info().cwnd
        peer.round_trip(EMPTY_S, lose=[0])
        assert peer.info().ca_state == RECOVERY
        assert peer.info().ssthresh <= before * 7 / 8


@NAMES
def test_a_loss_cuts_a_window_that_began_small(backend: Backend, name: str) -> None:
    with started(backend, name, replace(BEGINNING, burst_bytes=BURST), BURST) as peer:
        while peer.under_way:
            peer.round_trip(LONG_S)
        ended = peer.info().cwnd
        peer.send(BURST)
        began = peer.info().cwnd
        assert began < 3 / 4 * ended, flow_of(backend)
        peer.round_trip(EMPTY_S, lose=[0])
        assert peer.info().ca_state == RECOVERY
        assert peer.info().ssthresh <= began * 7 / 8


def test_new_namespace_has_no_queue_of_a_dead_one(backend: Backend) -> None:
    """The addresses are the same, and the kernel gives the new one the dead one's inode number."""
    with started(backend, "mltcp", BEGINNING):
        before = flow_of(backend)
        assert before.full_queue_us > 0
    with scripted_peer("mltcp", EMPTY_S) as peer:
        backend.tag(peer.sender.fileno(), 1)
        peer.send(10 * BURST)
        for rtt_s in (EMPTY_S, FULL_S, FULL_S):
            peer.round_trip(rtt_s)
        after = flow_of(backend)
    assert (after.full_queue_us, after.yields) == (0, 0), (before, after)


def takes_back(peer: Peer) -> bool:
    """True: the flow slow-starts again; nothing else raises the threshold."""
    before = peer.info().ssthresh
    for _ in range(30):
        peer.round_trip(EMPTY_S)
        if peer.info().ssthresh > before:
            return True
    return False


@NAMES
def test_a_recovery_without_a_loss_leaves_no_trace(backend: Backend, name: str) -> None:
    """A segment was late. DSACK says that it came twice."""
    with yielded(backend, name) as (peer, _):
        before = flow_of(backend)
        peer.round_trip(SHORT_S, late=[0])
        peer.round_trip(SHORT_S)
        after = flow_of(backend)
        assert peer.info().retransmits > before.retransmits
        assert peer.info().cwnd >= before.cwnd
        assert after.losses == before.losses
        assert after.full_queue_us > 0.95 * before.full_queue_us
        assert takes_back(peer)


@pytest.mark.parametrize(
    "names", [("reno", "mltcp"), ("mltcp", "reno"), ("mltcp", "mltcp_cubic")], ids="-to-".join
)
def test_who_changes_hands_in_a_recovery_keeps_its_window(
    backend: Backend, names: tuple[str, str]
) -> None:
    """A congestion control that comes to a recovery isn't asked for the window before it."""
    before, after = names
    with scripted_peer(before, EMPTY_S) as peer:
        peer.send(10 * BURST)
        for _ in range(3):
            peer.round_trip(EMPTY_S)
        peer.round_trip(SHORT_S, late=[0])
        assert peer.info().ca_state == RECOVERY
        reduced = peer.info().ssthresh
        peer.sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, after.encode())
        for _ in range(3):
            peer.round_trip(SHORT_S)
        assert peer.info().ca_state < RECOVERY
        assert reduced <= peer.info().cwnd < 10_000


@NAMES
def test_a_time_out_without_a_loss_leaves_no_trace(backend: Backend, name: str) -> None:
    """All ACKs were late. Those of data that wasn't sent again say so (F-RTO, RFC 5682)."""
    with yielded(backend, name) as (peer, _):
        before = flow_of(backend)
        peer.wait_for(LOSS)
        peer.round_trip(0)
        peer.round_trip(SHORT_S)
        after = flow_of(backend)
        assert peer.info().ca_state < RECOVERY
        assert peer.info().cwnd >= before.cwnd
        assert after.losses == before.losses
        assert takes_back(peer)


@pytest.mark.parametrize("name", ["mltcp", "mltcp_reno", "mltcp_cubic"])
def test_a_burst_that_ends_in_a_recovery_is_counted(backend: Backend, name: str) -> None:
    """Without SACK the kernel stays in a recovery, in which no window grows, after its last ACK."""
    bursts: list[tuple[int, list[int]]] = [(10, []), (16, [0]), (8, []), (8, [0]), (2, [])]
    backend.set_job(Job(1, "scripted", JobParams(burst_bytes=BURST, gap_s=0.01)))
    with scripted_peer(name, EMPTY_S, sack=False) as peer:
        backend.tag(peer.sender.fileno(), 1)
        for iteration, (segments, lose) in enumerate(bursts, 1):
            peer.send(segments * MSS)
            peer.round_trip(EMPTY_S, lose=lose)
            while peer.under_way:
                peer.round_trip(EMPTY_S)
            assert (peer.info().ca_state == RECOVERY) == bool(lose)
            flow = flow_of(backend)
            assert (flow.iteration, flow.sent_bytes) == (iteration, segments * MSS)
            time.sleep(0.05)


def app_limited_losses(peer: Peer, rtt_s: float) -> Iterator[None]:
    """Twenty segments, of a window of some hundred."""
    peer.send(100 * MSS)
    while peer.under_way:
        peer.round_trip(rtt_s)
    for lose in ([0], [3, 4], [0, 7, 12]):
        yield
        peer.send(20 * MSS)
        peer.round_trip(rtt_s, lose=lose)
        yield
        while peer.under_way:
            peer.round_trip(rtt_s)


def coalesced_acks(peer: Peer, rtt_s: float) -> Iterator[None]:
    """One for eight segments, with a loss once slow start has filled the window."""
    peer.send(400 * MSS)
    for trip in range(100):
        yield
        if not peer.under_way:
            return
        peer.round_trip(rtt_s, lose=[5] if trip == 3 else [], coalesce=8)
    raise AssertionError("nothing comes through")


def lost_tails(peer: Peer, rtt_s: float) -> Iterator[None]:
    for lose in ([9], [8, 9], [9]):
        peer.send(10 * MSS)
        peer.round_trip(rtt_s, lose=lose)
        yield
        peer.wait_for_probe()
        while peer.under_way:
            peer.round_trip(rtt_s)
            yield


Play = Callable[[Peer, float], Iterator[None]]


def windows(
    backend: Backend, name: str, play: Play, rtt_s: float, params: JobParams | None
) -> list[tuple[int, int, int, int]]:
    """The connection at each stop of the play."""
    with scripted_peer(name, rtt_s, probes=play is lost_tails) as peer:
        if params:
            backend.set_job(Job(1, "scripted", params))
            backend.tag(peer.sender.fileno(), 1)
        infos = [peer.info() for _ in play(peer, rtt_s)]
    return [(each.ca_state, each.cwnd, each.ssthresh, each.retransmits) for each in infos]


@pytest.mark.parametrize("play", [app_limited_losses, coalesced_acks, lost_tails])
@pytest.mark.parametrize("rtt_ms", [0.1, 0.5, 2])
def test_short_paths_windows_are_the_bases_at_gain_one(
    backend: Backend, play: Play, rtt_ms: float
) -> None:
    """Reno's, which doesn't look at the clock; but on a busy host what is sent together isn't the
    same each time, so what the base has done once is enough."""
    base = functools.partial(windows, backend, "reno", play, rtt_ms / 1000, None)
    bases = [base()]
    assert max(retransmits for *_, retransmits in bases[0]) > 0
    same = replace(BEGINNING, mechanisms=("increase",))
    for name, params in (("mltcp", None), ("mltcp_reno", None), ("mltcp", same)):
        while (own := windows(backend, name, play, rtt_ms / 1000, params)) not in bases:
            assert len(bases) < 6, f"{name}: {own}, not {bases}"
            bases.append(base())
