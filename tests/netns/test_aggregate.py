# SPDX-License-Identifier: BSD-2-Clause
"""The aggregator in the kernel and its workers over links: XDP and tc, loss, forgeries, deaths.

w0 --- wires --- switch (aggregator)
w1 ---/
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroute2 import IPRoute
from pyroute2.ethtool import Ethtool
from support.aggregation.sessions import run_ranks

from mltcp_tools.collectives.daemon import ask, is_up, log_path
from mltcp_tools.collectives.handshake import prove
from mltcp_tools.collectives.library import Chunks, How, Kind
from mltcp_tools.collectives.programs import XDP_VALUES
from mltcp_tools.collectives.session import PORT, Session, SessionError
from mltcp_tools.lab.collectives.bench_here import aggregator
from mltcp_tools.lab.collectives.star import Star
from mltcp_tools.lab.emulator.tcpinfo import read_tcp_info
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import NAMESPACES, inside

pytestmark = pytest.mark.bpf

RATE = 100_000_000
TIMEOUT_S = 20.0
DTYPES: dict[Kind, Any] = {
    Kind.FLOAT32: np.float32,
    Kind.FLOAT16: np.float16,
    Kind.INT32: np.int32,
}


@contextmanager
def star(workers: int, mode: str, **options: Any) -> Iterator[tuple[Star, str]]:
    """A star with an aggregator at its switch; its name."""
    with (
        RunLock() as lock,
        Star(lock.id, [RATE] * workers, **options) as built,
        aggregator(built, f"test-{lock.id}", mode) as name,
    ):
        yield built, name
    assert not is_up(name)
    assert not list(NAMESPACES.glob(f"mltcp-{lock.id}-*"))


def values(rank: int, count: int, kind: Kind) -> Any:
    rng = np.random.default_rng(rank)
    if kind is Kind.INT32:
        return rng.integers(-(2**31), 2**31, count).astype(np.int32)
    return rng.standard_normal(count).astype(DTYPES[kind])


def reduced(
    session: Session,
    array: Any,
    kind: Kind = Kind.FLOAT32,
    how: How = How.SUM,
    sparse: bool = False,
) -> Any:
    result = np.zeros_like(array)
    source, target = array.ctypes.data, result.ctypes.data
    chunks = Chunks.of(array.size, session.values) if sparse else None
    assert session.reduce(source, target, array.size, kind, how, TIMEOUT_S, chunks)
    return result


def assert_sums(results: list[Any], arrays: list[Any], atol: float = 1e-5) -> None:
    for result in results:
        assert not isinstance(result, Exception), result
        assert result.tobytes() == results[0].tobytes()
    wide = np.int64 if arrays[0].dtype == np.int32 else np.float64
    exact = np.sum([array.astype(wide) for array in arrays], axis=0)
    if wide is np.int64:
        assert (results[0] == exact.astype(np.int32)).all()
    else:
        assert np.allclose(results[0], exact, rtol=2.0**-10, atol=atol)


def counters(name: str, job: int = 0) -> dict[str, int]:
    document = ask(name, "status")
    assert document is not None
    found: dict[str, int] = document["jobs"][job]["counters"]
    return found


@pytest.mark.parametrize("mode", ["xdp", "tc"])
def test_sums_are_right_and_the_same_at_every_rank(mode: str) -> None:
    with star(4, mode) as (net, _):
        for kind in DTYPES:
            arrays = [values(rank, 30_001, kind) for rank in range(4)]
            results = run_ranks(net, lambda s, r, a=arrays, k=kind: reduced(s, a[r], k))
            assert_sums(results, arrays, 1e-2 if kind is Kind.FLOAT16 else 1e-5)


def test_chunks_that_are_zero_everywhere_are_not_sent() -> None:
    """The answer to a frame without values may have some: XDP hands those it can't make to tc."""
    arrays = [np.zeros(352 * 600, dtype=np.float32) for _ in range(3)]
    for rank, array in enumerate(arrays):
        array[352 * 10 * rank : 352 * (10 * rank + 5)] = rank + 1
        array[352 * 500 : 352 * 520] = 1

    with star(3, "xdp") as (net, name):

        def work(session: Session, rank: int) -> Any:
            result = reduced(session, arrays[rank], sparse=True)
            return result, counters(name)["bytes"]

        results = run_ranks(net, work)
        assert not [each for each in results if isinstance(each, Exception)]
        assert_sums([result for result, _ in results], arrays)
        # Chunks with values are 75 of 600; a host that is held up sends some of them again.
        assert results[0][1] < 4 * 352 * 600 / 3


def test_full_queues_lose_packets_and_no_sum() -> None:
    arrays = [values(rank, 200_000, Kind.INT32) for rank in range(3)]
    with star(3, "xdp", queue=10_000) as (net, _):

        def work(session: Session, rank: int) -> Any:
            result = reduced(session, arrays[rank], Kind.INT32)
            return result, session.counters()

        results = run_ranks(net, work)
        assert_sums([result for result, _ in results], arrays)
        assert sum(counted.losses for _, counted in results) > 0


@contextmanager
def bulk_flow(net: Star, worker: int) -> Iterator[socket.socket]:
    """A Reno flow from a worker to the switch that always has something to send."""
    with inside(net.switch):
        server = socket.create_server((net.gateway(worker), 0))
    with inside(net.workers[worker]):
        sender = socket.socket()
    with server, sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        sender.connect(server.getsockname())
        peer, _ = server.accept()

        def send() -> None:
            with suppress(OSError):
                while True:
                    sender.sendall(bytes(100_000))

        def receive() -> None:
            while peer.recv(100_000):
                pass

        threads = [threading.Thread(target=each) for each in (send, receive)]
        for thread in threads:
            thread.start()
        try:
            yield sender
        finally:
            sender.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
            peer.close()


def test_beside_reno_a_worker_takes_no_more_than_two_flows() -> None:
    """Without halving it sends 2.6 to 2.9 times as much."""
    array = values(0, 1_000_000, Kind.INT32)
    with star(3, "xdp") as (net, _), bulk_flow(net, 0) as sender:

        def sent(session: Session) -> tuple[int, int]:
            return session.counters().sent_bytes, read_tcp_info(sender).bytes_acked

        def work(session: Session, rank: int) -> Any:
            reduced(session, array, Kind.INT32)  # both have begun
            before = sent(session)
            for _ in range(10):
                reduced(session, array, Kind.INT32)
            return [now - then for now, then in zip(sent(session), before, strict=True)]

        results = run_ranks(net, work)
    assert not [each for each in results if isinstance(each, Exception)], results
    worker, reno = results[0]
    assert 0.25 * reno < worker < 2.3 * reno


@pytest.mark.parametrize(("mode", "most"), [("xdp", XDP_VALUES), ("tc", 1024)])
def test_large_frames_carry_as_many_values_as_pass(mode: str, most: int) -> None:
    """Joining fails where sums don't come unasked."""
    arrays = [values(rank, 50_000, Kind.INT32) for rank in range(3)]
    with star(3, mode, mtu=9000) as (net, _):

        def work(session: Session, rank: int) -> Any:
            assert session.values == most
            return reduced(session, arrays[rank], Kind.INT32)

        assert_sums(run_ranks(net, work), arrays)


def test_two_jobs_at_once_each_with_its_quota() -> None:
    arrays = [values(rank, 100_000, Kind.INT32) for rank in range(4)]
    with star(4, "xdp") as (net, _):
        found: dict[str, list[Any]] = {}

        def work(session: Session, rank: int) -> Any:
            return [reduced(session, arrays[rank], Kind.INT32) for _ in range(3)]

        def run(job: str, workers: range) -> None:
            found[job] = run_ranks(net, work, job=job, workers=workers, slots=2000)

        threads = [
            threading.Thread(target=run, args=(job, workers))
            for job, workers in (("one", range(2)), ("two", range(4)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for job, ranks in (("one", 2), ("two", 4)):
            for turn in range(3):
                assert_sums([each[turn] for each in found[job]], arrays[:ranks])


def forged(key: int, **fields: int) -> bytes:
    header = {"type": 1, "worker": 1, "job": 0, "generation": 0, "slot": 0, "count": 4} | fields
    head = struct.pack(
        "<IBBHQIIIIIIHHhHQ",
        *(0x31474C4D, header["type"], 0, header["worker"], key),
        *(header["job"], header["generation"], 0, 1, 0, 0),
        *(header["slot"], header["count"], 0, 0, 0),
    )
    return head + bytes(16)


def test_who_has_no_key_changes_nothing() -> None:
    """Another process on a worker's host sends what it can make up, while the job works."""
    arrays = [values(rank, 300_000, Kind.INT32) for rank in range(3)]
    with star(3, "xdp") as (net, name):
        stop = threading.Event()

        def attack() -> None:
            with inside(net.workers[1]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
                where = (net.gateway(1), PORT)
                while not stop.wait(0.0005):
                    out.sendto(forged(1), where)
                    out.sendto(forged(1, job=63), where)
                    out.sendto(forged(1, slot=65535, count=60000), where)
                    out.sendto(os.urandom(200), where)

        attacker = threading.Thread(target=attack)
        attacker.start()

        def work(session: Session, rank: int) -> Any:
            results = [reduced(session, arrays[rank], Kind.INT32) for _ in range(3)]
            return results, counters(name)

        try:
            results = run_ranks(net, work)
        finally:
            stop.set()
            attacker.join()
        for turn in range(3):
            assert_sums([each[0][turn] for each in results], arrays)
        assert results[0][1]["wrong_key"] > 10
        assert results[0][1]["foreign"] > 10


def test_without_secret_or_from_another_port_nothing_changes() -> None:
    """It has read a packet, so it knows the key; and it can take a worker's address."""
    arrays = [values(rank, 100_000, Kind.INT32) for rank in range(3)]
    with star(3, "xdp") as (net, name):

        def work(session: Session, rank: int) -> Any:
            if rank == 0:
                seen = session.admitted
                packet = forged(seen.key, worker=0, job=seen.job, generation=seen.generation)
                own_port = session.data_port
                with (
                    inside(net.workers[1]),
                    raw_socket() as out,
                ):
                    for _ in range(20):  # rank 0's address, by rank 1's port
                        out.sendto(framed(net, own_port, packet), (net.gateway(0), 0))
                with inside(net.workers[0]), raw_socket() as out:
                    for _ in range(20):
                        out.sendto(framed(net, own_port, packet), (net.gateway(0), 0))
            return reduced(session, arrays[rank], Kind.INT32), counters(name)

        results = run_ranks(net, work)
        assert_sums([result for result, _ in results], arrays)
        assert results[0][1]["wrong_sender"] > 10
        assert results[0][1]["corrupt"] > 10


def raw_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)


def framed(net: Star, port: int, payload: bytes) -> bytes:
    """A UDP packet from rank 0's socket, for a raw one."""
    udp = struct.pack("!HHHH", port, PORT, 8 + len(payload), 0) + payload
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
    return head + socket.inet_aton(net.address(0)) + socket.inet_aton(net.gateway(0)) + udp


@pytest.mark.parametrize("mode", ["xdp", "tc"])
def test_what_only_crosses_the_aggregators_host_passes(mode: str) -> None:
    with star(2, mode) as (net, _):
        with inside(net.workers[1]):
            there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with there, inside(net.workers[0]), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            there.settimeout(10)
            there.bind((net.address(1), PORT))
            for payload in (b"hello", forged(1), bytes(300)):
                out.sendto(payload, (net.address(1), PORT))
                assert there.recv(2000) == payload


# Kernels without the action `drop` redirect to an interface that is down.
NO_UDP = "tc filter add dev w0 ingress prio 1 protocol ip u32 match ip protocol 17 0xff"
NO_UDP += " action mirred egress redirect dev lo"


@pytest.mark.parametrize("dropped", ["large packets", "UDP"])
def test_a_path_that_drops_packets_is_noticed_when_joining(dropped: str) -> None:
    with star(2, "tc") as (net, _):  # a veth's MTU doesn't hold what is yet to be cut
        with inside(net.wires), IPRoute() as ip:
            if dropped == "UDP":
                subprocess.run(NO_UDP.split(), check=True)
            else:
                ip.link("set", index=ip.link_lookup(ifname="w0")[0], mtu=600)
        results = run_ranks(net, lambda session, rank: None)
    assert all(isinstance(each, SessionError) for each in results), results
    # The first one to give up says why; the other one may hear no more than that it left.
    said = [str(each) for each in results if "left." not in str(each)]
    assert said
    for each in said:
        assert "UDP packets of 1492 bytes" in each


@pytest.mark.parametrize("mode", ["auto", "xdp"])
def test_veth_without_gro_is_served_by_tc_or_named(mode: str) -> None:
    """Containers have such; XDP's frames to it are dropped."""
    arrays = [values(rank, 100_000, Kind.INT32) for rank in range(3)]
    with star(3, mode) as (net, _):
        with inside(net.wires):
            for number in range(3):
                switch_off_gro(f"s{number}")
        results = run_ranks(net, lambda s, r: (reduced(s, arrays[r], Kind.INT32), s.counters()))
    if mode == "auto":
        assert_sums([result for result, _ in results], arrays)
        assert all(counted.losses < 100_000 // 352 / 2 for _, counted in results)
        return
    # The first one to give up says why; the others may hear no more than that it left.
    said = [str(each) for each in results if "left." not in str(each)]
    assert said
    assert all("ethtool -K eth0 gro on" in each for each in said), said


def test_ranks_behind_one_port_of_xdp_are_served_by_tc() -> None:
    arrays = [values(rank, 100_000, Kind.FLOAT32) for rank in range(3)]
    with star(2, "xdp") as (net, name):
        results = run_ranks(
            net, lambda s, r: (reduced(s, arrays[r]), counters(name)), workers=(0, 0, 1)
        )
    assert_sums([result for result, _ in results], arrays)
    assert all(counted["results"] > 0 and not counted["refused"] for _, counted in results)


def switch_off_gro(interface: str) -> None:
    with closing(Ethtool()) as ethtool:
        state = ethtool.get_features(interface)
        state.features["rx-gro"].enable = False
        ethtool.set_features(interface, state)
        assert not ethtool.get_features(interface).features["rx-gro"].enable


def test_four_hostile_clients_leave_the_others_working() -> None:
    """One holds connections, one begins jobs, one sends what is no request, one never reads."""
    arrays = [values(rank, 50_000, Kind.INT32) for rank in range(2)]
    with star(6, "xdp") as (net, name):
        stop, held = threading.Event(), list[socket.socket]()

        def call(worker: int) -> socket.socket:
            with inside(net.workers[worker]):
                out = socket.socket()
                out.settimeout(5)
                out.connect((net.gateway(worker), PORT))
            held.append(out)
            return out

        def holds(number: int) -> None:
            call(2)

        def begins(number: int) -> None:
            asked = {"job": f"hostile-{number}", "workers": 64, "rank": 0, "udp_port": 5000}
            asked |= {"values": 352, "slots": 65536}
            out = call(3)
            challenge = bytes.fromhex(json.loads(out.recv(100))["challenge"])
            request = {"join": asked, "proof": prove("", challenge, asked)}
            out.sendall(json.dumps(request).encode() + b"\n")

        def babbles(number: int) -> None:
            with call(4) as out:
                out.sendall(os.urandom(20_000))

        def deaf(number: int) -> None:
            call(5).sendall(b'{"join": {}}\n' * 50)

        def attack(what: Any) -> None:
            for number in range(600):
                if stop.is_set():
                    return
                with suppress(OSError):
                    what(number)

        attackers = [
            threading.Thread(target=attack, args=(a,)) for a in (holds, begins, babbles, deaf)
        ]
        for attacker in attackers:
            attacker.start()
        try:
            for turn in range(5):
                results = run_ranks(
                    net,
                    lambda s, r: reduced(s, arrays[r], Kind.INT32),
                    job=f"job-{turn}",
                    workers=range(2),
                )
                assert_sums(results, arrays)
        finally:
            stop.set()
            for attacker in attackers:
                attacker.join()
            for each in held:
                each.close()
        document = ask(name, "status")
        assert document is not None
        assert not any(job["slots"] for job in document["jobs"])


def test_a_silent_rank_is_named() -> None:
    array = values(0, 1000, Kind.INT32)
    with star(3, "xdp") as (net, _):
        over = threading.Barrier(3)

        def work(session: Session, rank: int) -> Any:
            try:
                if rank == 2:
                    return None
                target = np.zeros_like(array)
                session.reduce(
                    array.ctypes.data, target.ctypes.data, array.size, Kind.INT32, How.SUM, 1.0
                )
            finally:
                over.wait()
            return None

        results = run_ranks(net, work)
        sentences = {str(each) for each in results if isinstance(each, SessionError)}
        assert sentences == {"Ranks 2 sent nothing for 1 s."}


def test_nobody_is_let_in_by_oversight(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch()
    up = ("up", "--name", "oversight", "--interface", "lo")
    for options, sentence in (
        ((), "Name --token-file to accept"),
        (("--open", "--token-file", str(token)), "Name --token-file to accept"),
        (("--token-file", str(token)), "is empty; write the workers' token into it"),
    ):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            mltcp(*up, *options)
        assert sentence in caught.value.stderr
    assert not is_up("oversight")


def test_token_of_a_relative_path_lets_in_and_the_log_tells(tmp_path: Path) -> None:
    """Two jobs after each other have one index, and counters of their own."""
    arrays = [values(rank, 100_000, Kind.INT32) for rank in range(2)]
    (tmp_path / "token").write_text("secret\n")
    with RunLock() as lock, Star(lock.id, [RATE] * 2) as net:
        name = f"test-{lock.id}"

        def work(session: Session, rank: int) -> Any:
            return reduced(session, arrays[rank], Kind.INT32), counters(name)["bytes"]

        up = ("up", "--name", name, "-i", "port0,port1", "--token-file", "token")
        with inside(net.switch):
            mltcp(*up, cwd=tmp_path)
        try:
            refused = run_ranks(net, work, token="guess")
            jobs = [run_ranks(net, work, job=job, token="secret") for job in ("one", "two")]
        finally:
            mltcp("down", "--name", name)
    assert all("The aggregator's token is another one" in str(each) for each in refused), refused
    for results in jobs:
        assert_sums([result for result, _ in results], arrays)
        assert max(taken for _, taken in results) < 1.5 * 2 * 400_000
    log = log_path(name).read_text()
    log_path(name).unlink()
    for told in ("Refused 10.", "Job one: 2 workers, 1024 slots, tc.", "Job two ended: "):
        assert told in log


def test_a_killed_aggregator_is_noticed_and_replaced() -> None:
    array = values(0, 3_000_000, Kind.INT32)
    with RunLock() as lock, Star(lock.id, [RATE] * 2) as net:
        name = f"test-{lock.id}"
        up = ("up", "--open", "--name", name, "-i", "port0,port1")
        with inside(net.switch):
            mltcp(*up)
        pid = int(json.loads(mltcp("status", "--name", name, "--json"))["process"])

        def work(session: Session, rank: int) -> Any:
            if rank == 0:
                threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
            with pytest.raises(SessionError, match="it is gone"):
                reduced(session, array, Kind.INT32)
            return True

        def filters() -> int:
            command = ["tc", "filter", "show", "dev", "port0", "ingress"]
            with inside(net.switch):
                return subprocess.check_output(command).count(b"mltcp-aggregate")

        assert run_ranks(net, work) == [True, True]
        with inside(net.switch):
            mltcp(*up)
        assert filters() == 1
        arrays = [values(rank, 1000, Kind.INT32) for rank in range(2)]
        assert_sums(run_ranks(net, lambda s, r: reduced(s, arrays[r], Kind.INT32)), arrays)
        mltcp("down", "--name", name)
        assert filters() == 0
        log_path(name).unlink()


def mltcp(*arguments: str, cwd: Path | None = None) -> str:
    return subprocess.run(
        ["mltcp", "collectives", "aggregator", *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"PATH": f"{os.path.dirname(os.sys.executable)}:{os.environ['PATH']}"},
    ).stdout
