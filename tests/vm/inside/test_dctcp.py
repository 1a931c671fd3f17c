# SPDX-License-Identifier: BSD-2-Clause
"""mltcp_dctcp on both backends, with what only a VM's kernel has: dctcp, and RED that marks."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netns.attached import JOB
from netns.backends_here import BPF_IN_GUEST, LEARNT_GAP_S, fresh
from netns.connected import attach
from netns.connections import connection, hold_back, send_burst
from netns.test_attach_kernel import catching
from vm.cgroups import cgroup
from vm.cgroups import inside as within
from vm.hostile import elsewhere, exchange
from vm.loading import allow, choose, chosen, disconnect, pair

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.backends.catch import Catch
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.host.descriptors import cookie_of
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.namespaces import inside, sysctls_set, write_sysctl
from mltcp_tools.lab.testbed.network import Dumbbell
from mltcp_tools.live.attach.pidfd import put_back
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.sockets import sockets

BASE = Path("/sys/module/tcp_dctcp")
ECN = "net.ipv4.tcp_ecn"
DEFAULT = "net.ipv4.tcp_congestion_control"
ALLOWED = "net.ipv4.tcp_allowed_congestion_control"
LINK = Link(20_000_000, 200_000, 0.005, "red")  # a debug kernel can fill that
BURST = 400_000
NAME = "mltcp_dctcp"
RTT_S = 0.05

only_bpf = pytest.mark.parametrize(
    "backend", [pytest.param("bpf", marks=pytest.mark.bpf)], indirect=True
)
only_bpf_full = pytest.mark.parametrize("backend", [BPF_IN_GUEST], indirect=True)
"""Loading costs ten seconds there, and how rules and ECN go together rarely breaks."""


def tcp_ecn(value: str) -> contextlib.AbstractContextManager[None]:
    return sysctls_set({ECN: value})


BOTH = [pytest.param("bpf", marks=pytest.mark.bpf), "kmod"]


@pytest.fixture(params=BOTH)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh(request.param) as found:
        found.load()
        found.load([NAME])
        yield found


@pytest.fixture
def network(backend: Backend) -> Iterator[Dumbbell]:
    """A bottleneck that marks, and a receiver of dctcp's kind, which answers its SYN as it asks."""
    allow(NAME)
    with Dumbbell(f"e{os.getpid()}", LINK, {}, 1) as found:
        with inside(found.receiver):
            write_sysctl(DEFAULT, NAME)
        yield found


def test_it_is_loaded_where_it_is_asked_for_and_stays_restricted(backend: Backend) -> None:
    assert NAME in backend.status().loaded
    assert NAME not in facts.read_sysctl("net.ipv4.tcp_allowed_congestion_control").split()


def test_it_is_marked_where_the_link_marks(network: Dumbbell) -> None:
    with connection(network, NAME) as sender:
        send_burst(sender, 3_000_000)
        assert chosen(sender) == NAME
        counters = network.counters()
    assert counters.marks > 20
    assert counters.marks > counters.drops


def test_marks_tell_what_a_full_queue_is_before_any_loss(
    backend: Backend, network: Dumbbell
) -> None:
    """A flow knows its iteration, and of the queue what marks say; so it holds back, and yields."""
    backend.set_job(Job(1, "one", JobParams(burst_bytes=BURST, gap_s=LEARNT_GAP_S)))
    hold_back(network, 150_000)  # the queue drops none of it, however late a mark is
    with connection(network, NAME) as sender:
        backend.tag(sender.fileno(), 1)
        for _ in range(4):
            send_burst(sender, BURST)
            time.sleep(4 * LEARNT_GAP_S)
        (flow,) = (each for each in backend.flows() if each.job_id)  # the receiver has one, too
        counters = network.counters()
    assert (flow.congestion_control, flow.job_id, flow.iteration) == (NAME, 1, 4)
    assert flow.losses > 0
    assert counters.drops == 0
    assert flow.full_queue_us > 0


def test_a_connection_without_ecn_has_reno_below(backend: Backend) -> None:
    """dctcp's own switch to reno there would leave the kernel's count of users wrong."""
    with tcp_ecn("0"):
        for _ in range(20):
            with pair(NAME) as (sender, peer):
                assert chosen(sender) == "mltcp"
                exchange(sender, peer)
                choose(sender, "reno")
                choose(sender, NAME)
                exchange(sender, peer)


def test_nothing_holds_the_base_afterwards(backend: Backend) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        choose(server, NAME)  # a SYN of dctcp asks for ECN in a way that only its like answers
        for _ in range(20):
            with socket.socket() as sender:
                choose(sender, NAME)
                sender.connect(server.getsockname())
                with server.accept()[0] as peer:
                    exchange(sender, peer)
                    assert (chosen(sender), chosen(peer)) == (NAME, NAME)
                    choose(sender, "reno")
                    choose(sender, NAME)
    deadline = time.monotonic() + 60
    while backend.flows() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert backend.unload() == 0
    while users() and time.monotonic() < deadline:
        time.sleep(0.1)  # programs are freed a little later
    assert users() == 0


def claims_ecn(sock: socket.socket) -> bool:
    """Say whether its packets do (RFC 3168, 5)."""
    return bool(sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) & 3)


def flows_of_job(backend: Backend) -> list[tuple[str, int]]:
    """Flows that are listed got their base's state first, and then their own."""
    return [(each.congestion_control, each.job_id) for each in backend.flows() if each.job_id]


@pytest.fixture(params=[False, True], ids=["without-ecn", "with-ecn"])
def ecn(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Have two ends that don't care agree on ECN, or not."""
    with tcp_ecn(str(int(request.param))):
        yield request.param


@contextlib.contextmanager
def ends_in(
    path: Path, name: str, listener: str = "reno", *, peer_outside: bool = False
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a connection, made by a process in the cgroup that has chosen these for them.

    peer_outside: the listener was made before the process came to the cgroup.
    """
    with contextlib.ExitStack() as stack:
        if not peer_outside:
            stack.enter_context(within(path))
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        if peer_outside:
            stack.enter_context(within(path))
        sender = stack.enter_context(socket.socket())
        choose(server, listener)
        choose(sender, name)
        sender.connect(server.getsockname())
        with server.accept()[0] as peer:
            exchange(sender, peer)
            yield sender, peer


@pytest.fixture(params=BOTH)
def unloaded(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh(request.param) as found:
        yield found


def default_alone(name: str) -> contextlib.AbstractContextManager[None]:
    """Have all get it that choose nothing, though since then nobody may choose it."""
    return sysctls_set({DEFAULT: name, ALLOWED: "reno"})


@only_bpf_full
@pytest.mark.parametrize("asked", ["0", "1", "2"])
def test_ends_of_rules_agree_on_ecn_whatever_else_does(backend: Backend, asked: str) -> None:
    """As two ends do that have chosen it themselves."""
    with (
        tcp_ecn(asked),
        cgroup("dctcp") as (path, _),
        catching(backend, {path: Catch(JOB.id, NAME)}),
        ends_in(path, "reno") as ends,
    ):
        assert [chosen(each) for each in ends] == [NAME] * 2
        assert flows_of_job(backend) == [(NAME, JOB.id)] * 2
        assert [claims_ecn(each) for each in ends] == [True] * 2
        detach(job=JOB.name)
        assert [chosen(each) for each in ends] == ["reno"] * 2
        assert [claims_ecn(each) for each in ends] == [False] * 2


@only_bpf
def test_rules_connection_claims_ecn_only_if_peer_agrees(backend: Backend, ecn: bool) -> None:
    with (
        cgroup("dctcp") as (path, _),
        catching(backend, {path: Catch(JOB.id, NAME)}),
        ends_in(path, "reno", peer_outside=True) as (sender, _),
    ):
        assert (chosen(sender), claims_ecn(sender)) == (NAME if ecn else "reno", ecn)
        assert flows_of_job(backend) == ([(NAME, JOB.id)] if ecn else [])
        detach()


@only_bpf_full
def test_what_a_rule_leaves_alone_does_not_ask_for_ecn(backend: Backend) -> None:
    with (
        cgroup("dctcp") as (path, _),
        catching(backend, {path: Catch(JOB.id, NAME, lowest_port=65_535)}),
        ends_in(path, "reno") as ends,
    ):
        assert [chosen(each) for each in ends] == ["reno"] * 2
        assert [claims_ecn(each) for each in ends] == [False] * 2


@only_bpf_full
def test_inner_rule_does_not_ask_for_ecn_of_the_outer(backend: Backend) -> None:
    with (
        cgroup("dctcp") as (path, _),
        cgroup("inner", path) as (inner, _),
        catching(backend, {path: Catch(JOB.id, NAME), inner: Catch(JOB.id, "mltcp")}),
        ends_in(inner, "reno") as ends,
    ):
        assert [chosen(each) for each in ends] == ["mltcp"] * 2
        assert [claims_ecn(each) for each in ends] == [False] * 2
        detach()


WITH, WITHOUT = (NAME, True), ("mltcp", False)


@only_bpf_full
@pytest.mark.parametrize(
    ("asked", "name", "expected"),
    [
        ("1", "reno", [WITH, WITH, WITH, WITH, WITH]),
        ("2", "reno", [("reno", False), WITH, WITH, ("reno", False), ("reno", False)]),
        ("1", NAME, [WITHOUT, WITH, WITH, WITHOUT, WITH]),
        ("2", NAME, [WITHOUT, WITH, WITH, WITHOUT, WITHOUT]),
    ],
)
def test_a_socket_of_a_rule_that_connects_again_asks_again(
    backend: Backend, asked: str, name: str, expected: list[tuple[str, bool]]
) -> None:
    """First to a peer without a rule, then to one with it twice, and to the first twice again.

    The former answers who asks as RFC 3168 has it, which a SYN for dctcp's sake doesn't.
    """
    with (
        tcp_ecn(asked),
        socket.create_server(("127.0.0.1", 0)) as other,
        cgroup("dctcp") as (path, _),
        catching(backend, {path: Catch(JOB.id, NAME)}),
        within(path),
        socket.create_server(("127.0.0.1", 0)) as like,
        socket.socket() as sender,
    ):
        choose(other, "reno")
        choose(like, "reno")
        choose(sender, name)
        seen = []
        for server in (other, like, like, other, other):
            sender.connect(server.getsockname())
            with server.accept()[0] as peer:
                exchange(sender, peer)
                seen.append((chosen(sender), claims_ecn(sender)))
                jobs = {each.cookie: each.job_id for each in backend.flows()}
                assert jobs.get(cookie_of(sender), 0) == (JOB.id if chosen(sender) != "reno" else 0)
            disconnect(sender)
        assert seen == expected
        detach()


@contextlib.contextmanager
def watched(backend: Backend) -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    """A socket of dctcp whose cgroup's rule watches those, a listener like it, and one outside."""
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        cgroup("dctcp") as (path, _),
        catching(backend, {path: Catch(JOB.id, choices={"dctcp": NAME})}),
        within(path),
        socket.create_server(("127.0.0.1", 0)) as like,
        socket.socket() as sender,
    ):
        choose(other, "reno")
        choose(like, "dctcp")
        choose(sender, "dctcp")
        yield sender, like, other
        detach()


@only_bpf_full
@pytest.mark.parametrize("asked", ["1", "2"])
def test_watched_socket_claims_no_ecn_if_peer_refuses(backend: Backend, asked: str) -> None:
    """dctcp would go by the last peer's answer. Without ECN it has another name."""
    with tcp_ecn(asked), watched(backend) as (sender, like, other):
        seen = []
        for server in (like, other, like):
            sender.connect(server.getsockname())
            with server.accept()[0] as peer:
                exchange(sender, peer)
                seen.append((chosen(sender), claims_ecn(sender)))
            disconnect(sender)
        assert seen == [WITH, ("dctcp-reno", False), WITH if asked == "1" else seen[1]]


@only_bpf_full
def test_socket_back_on_its_own_choice_is_no_longer_attached(
    backend: Backend,
) -> None:
    with tcp_ecn("1"), watched(backend) as (sender, like, other):
        sender.connect(like.getsockname())
        like.accept()[0].close()
        disconnect(sender)
        sender.connect(other.getsockname())
        with other.accept()[0]:
            assert chosen(sender) == "dctcp-reno"
            assert detach(job=JOB.name) == []


@only_bpf_full
def test_reconnect_after_replacement_claims_no_ecn_alone(
    backend: Backend,
) -> None:
    """It still runs what was replaced, of the same name."""
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        cgroup("dctcp") as (path, _),
        within(path),
        socket.create_server(("127.0.0.1", 0)) as like,
        socket.socket() as sender,
    ):
        for server in (other, like, sender):
            choose(server, "reno")
        rules = {path: Catch(JOB.id, NAME)}
        with catching(backend, rules):
            sender.connect(like.getsockname())
            with like.accept()[0] as peer:
                exchange(sender, peer)
                assert (chosen(sender), claims_ecn(sender)) == WITH
            disconnect(sender)
        backend.renew()
        with catching(backend, rules):
            sender.connect(other.getsockname())
            with other.accept()[0] as peer:
                exchange(sender, peer)
                assert (chosen(sender), claims_ecn(sender)) == ("reno", False)
            assert flows_of_job(backend) == []


def lose_all() -> None:
    """Have no packet of this network namespace arrive, until the qdisc goes."""
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "100%"], check=True)


@pytest.mark.parametrize("unloaded", [BPF_IN_GUEST], indirect=True)
@pytest.mark.parametrize(
    ("loaded", "name", "left"),
    [("mltcp", NAME, "mltcp"), ("mltcp_reno", NAME, "reno"), ("mltcp_reno", "dctcp", "reno")],
)
def test_socket_restored_before_peer_answers_claims_no_ecn(
    unloaded: Backend, loaded: str, name: str, left: str
) -> None:
    """Until then the kernel notes that both ends have agreed."""
    unloaded.load([loaded, NAME])
    with (
        elsewhere(),
        cgroup("dctcp") as (path, _),
        catching(unloaded, {path: Catch(JOB.id, loaded)}),
        within(path),
        socket.socket() as sender,
    ):
        write_sysctl(ECN, "1")
        lose_all()
        choose(sender, name)
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sender.connect(("127.0.0.1", 9))
        assert (chosen(sender), claims_ecn(sender)) == (loaded, False)
        assert [each.outcome for each in detach(job=JOB.name)] == ["restored"]
        assert (chosen(sender), claims_ecn(sender)) == (left, False)


@contextlib.contextmanager
def asking(name: str) -> Iterator[tuple[socket.socket, Callable[[], socket.socket]]]:
    """A socket that has asked for ECN and has no answer yet, and what has its peer refuse that."""

    def refused() -> socket.socket:
        write_sysctl(ECN, "0")
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
        sender.setblocking(True)
        return server.accept()[0]

    with (
        elsewhere(),
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket() as sender,
    ):
        write_sysctl(ECN, "1")
        lose_all()
        choose(server, "reno")
        choose(sender, name)
        sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sender.connect(server.getsockname())
        yield sender, refused


def test_what_is_chosen_before_its_peer_refuses_ecn_claims_none(backend: Backend) -> None:
    with asking("reno") as (sender, refused):
        choose(sender, NAME)
        with refused() as peer:
            exchange(sender, peer)
            assert claims_ecn(sender) is False
            assert chosen(sender) == "mltcp"


@pytest.mark.parametrize("name", [NAME, "dctcp"])
def test_pidfd_restore_before_peer_refuses_claims_no_ecn(backend: Backend, name: str) -> None:
    with asking("reno") as (sender, refused):
        put_back(sender, name)
        with refused() as peer:
            exchange(sender, peer)
            assert claims_ecn(sender) is False


@only_bpf_full
def test_what_asks_for_ecn_itself_is_caught_with_it(backend: Backend, ecn: bool) -> None:
    """It is what a connection without ECN takes in its place, where its peer doesn't agree."""
    name = NAME if ecn else "mltcp"
    with (
        cgroup("dctcp") as (path, _),
        catching(backend, {path: Catch(JOB.id, NAME)}),
        ends_in(path, NAME, NAME if ecn else "reno", peer_outside=True) as (sender, _),
    ):
        assert (chosen(sender), claims_ecn(sender)) == (name, ecn)
        assert flows_of_job(backend) == [(name, JOB.id)]
        detach(job=JOB.name)
        assert (chosen(sender), claims_ecn(sender)) == (name, ecn)
        assert flows_of_job(backend) == []


def test_dctcp_connection_without_ecn_is_attached_and_restored(backend: Backend) -> None:
    """Nobody can ask for the name that it has then."""
    with tcp_ecn("0"), pair("dctcp") as ends:
        before = [chosen(each) for each in ends]
        assert before[0] == "dctcp-reno"
        inodes = {os.fstat(each.fileno()).st_ino for each in ends}
        own = [each for each in sockets(process(os.getpid())) if each.inode in inodes]
        assert [each.outcome for each in attach(own, JOB, "mltcp", backend)] == ["switched"] * 2
        assert [each.outcome for each in detach(job=JOB.name)] == ["restored"] * 2
        assert [chosen(each) for each in ends] == before
        exchange(*ends)


@only_bpf
def test_existing_connections_with_agreed_ecn_are_attached(backend: Backend, ecn: bool) -> None:
    with cgroup("dctcp") as (path, _), ends_in(path, "reno") as ends:
        inodes = {os.fstat(each.fileno()).st_ino for each in ends}
        own = [each for each in sockets(process(os.getpid())) if each.inode in inodes]
        changes = attach(own, JOB, NAME, backend)
        if ecn:
            assert [each.outcome for each in changes] == ["switched"] * 2
            assert flows_of_job(backend) == [(NAME, JOB.id)] * 2
        else:
            assert all("needs ECN" in each.reason for each in changes)
            assert [each.outcome for each in changes] == ["failed"] * 2
            assert [chosen(each) for each in ends] == ["reno"] * 2
        assert [claims_ecn(each) for each in ends] == [ecn] * 2
        detach()


@only_bpf_full
def test_socket_kept_from_ecn_claims_none_when_restored(
    backend: Backend,
) -> None:
    with (
        cgroup("dctcp") as (path, _),
        catching(backend, {path: Catch(JOB.id, "mltcp_reno")}),
        ends_in(path, NAME) as (sender, _),
    ):
        assert chosen(sender) == "mltcp_reno"
        detach(job=JOB.name)
        assert (chosen(sender), claims_ecn(sender)) == ("mltcp", False)


def agree_accurately() -> None:
    """Have two ends agree on accurate ECN; on RFC 3168's where the kernel doesn't know that yet."""
    write_sysctl(ECN, "1")
    with contextlib.suppress(UsageError):
        write_sysctl(ECN, "3")


@only_bpf_full
@pytest.mark.parametrize("accurate_there", [False, True])
def test_a_rule_agrees_to_ecn_as_the_connections_namespace_does(
    backend: Backend, accurate_there: bool
) -> None:
    """Not as the agent's does: containers may have their own."""
    with tcp_ecn("2"), cgroup("dctcp") as (path, _), contextlib.ExitStack() as stack:
        if not accurate_there:
            agree_accurately()
        stack.enter_context(catching(backend, {path: Catch(JOB.id, NAME)}))
        stack.enter_context(elsewhere())
        if accurate_there:
            agree_accurately()
        ends = stack.enter_context(ends_in(path, "reno"))
        assert [chosen(each) for each in ends] == [NAME] * 2
        assert [claims_ecn(each) for each in ends] == [True] * 2
        detach(job=JOB.name)


def users() -> int:
    """Count of those that hold the base; nobody can where it is built in."""
    count = BASE / "refcnt"
    return int(count.read_text()) if count.exists() else 0
