"""The kernel module against users who make mistakes or mean harm, and against bad timing.

The kernel must stay free of complaints (the bridge fails a test during which it had one), and
after each test the module must unload and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guest.common import CACHE
from vm.inside.test_module import FILE, MODULE, SLAB, choose, chosen, insert, pair, remove

from mltcp_tools.backends import attributes, genl, get_backend
from mltcp_tools.backends.base import MODULE_NAMES, Flow, Job, JobParams
from mltcp_tools.native.uapi import GENL_NAME, Attribute, Command
from mltcp_tools.testbed.namespaces import write_sysctl

pytestmark = pytest.mark.guest(timeout=1200)

PROGRAMS = CACHE / "programs"
NOBODY = 65534
JOBS_MAX = 4096
PARAMS = JobParams(total_bytes=20_000, gap_s=0.001, mechanisms=("increase", "decrease", "yield"))
ORPHANS_S = 60
"""How long closed sockets may hold a congestion control."""

KERNELS_OWN = ("reno", "cubic", "dctcp", "bbr")

libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    """Loaded before; unloaded afterwards, with no object and no reference to a base left."""
    for name in ("tcp_dctcp", "tcp_bbr"):
        if not Path("/sys/module", name).exists():
            subprocess.run(["modprobe", name], check=True)
    before = references()
    insert()
    yield
    if MODULE.exists():
        remove()
    assert not SLAB.exists()
    deadline = time.monotonic() + ORPHANS_S
    while references() != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert references() == before


def references() -> dict[str, int]:
    """How many hold the congestion controls that are modules of the kernel."""
    counts = {}
    for name in KERNELS_OWN:
        path = Path(f"/sys/module/tcp_{name}/refcnt")
        if path.exists():
            counts[name] = int(path.read_text())
    return counts


class Client:
    """The netlink interface, with the kernel's own errors. Of the namespace where it was made."""

    def __init__(self) -> None:
        self.socket = genl.GenericSocket(GENL_NAME)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def set_job(self, number: int, params: JobParams = PARAMS) -> None:
        job = Job(number, f"job {number}", params)
        self.socket.request(Command.JOB_SET, attributes.job_attributes(job))

    def delete_job(self, number: int) -> None:
        self.socket.request(Command.JOB_DEL, {Attribute.JOB_ID: struct.pack("=I", number)})

    def tag(self, fd: int, job: int) -> None:
        given = {Attribute.FD: struct.pack("=i", fd), Attribute.JOB_ID: struct.pack("=I", job)}
        self._ask_again(Command.TAG, given)

    def untag(self, fd: int) -> None:
        self._ask_again(Command.UNTAG, {Attribute.FD: struct.pack("=i", fd)})

    def _ask_again(self, command: Command, given: dict[int, bytes]) -> None:
        """An ACK may be under way in the socket just then."""
        for _ in range(1000):
            try:
                self.socket.request(command, given)
                return
            except genl.NetlinkError as error:
                if error.errno != errno.EBUSY:
                    raise
        raise AssertionError("the socket stays busy")

    def jobs(self) -> list[int]:
        return sorted(
            attributes.job_from(genl.decode(data)).id for data in self._dump(Command.JOB_GET)
        )

    def flows(self) -> list[Flow]:
        found = [genl.decode(data)[Attribute.FLOW] for data in self._dump(Command.FLOW_GET)]
        return [attributes.flow_from(data) for data in found]

    def status(self, attribute: Attribute) -> int:
        return genl.number(self.socket.request(Command.STATUS_GET, {})[attribute])

    def _dump(self, command: Command) -> list[bytes]:
        return self.socket.dump(command)


@pytest.fixture
def client(module: None) -> Iterator[Client]:
    with Client() as found:
        yield found


@contextlib.contextmanager
def refused(number: int, why: str = "") -> Iterator[None]:
    """The kernel says that error, with a text in which `why` appears."""
    with pytest.raises(genl.NetlinkError) as raised:
        yield
    assert errno.errorcode[raised.value.errno] == errno.errorcode[number]
    assert why in raised.value.text


def in_child(function: Callable[[], None]) -> None:
    """Run it in a process of its own, which may change who and where it is; fail as it fails."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            try:
                function()
            except BaseException as error:
                said.write(f"{type(error).__name__}: {error}")
                said.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        assert status == 0, said.read()


def unshare(flags: int) -> None:
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")


NEWNET, NEWUSER = 0x40000000, 0x10000000


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """In a new network namespace, which is gone afterwards but for sockets that are kept."""
    with open("/proc/thread-self/ns/net") as home:
        unshare(NEWNET)
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert not libc.setns(home.fileno(), 0)


def connected(name: str, family: int = socket.AF_INET) -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection; the first has that congestion control."""
    address = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.create_server((address, 0), family=family) as server:
        sender = socket.socket(family)
        choose(sender, name)
        sender.connect(server.getsockname())
        return sender, server.accept()[0]


def exchange(sender: socket.socket, peer: socket.socket, times: int = 5) -> None:
    for _ in range(times):
        sender.sendall(bytes(3000))
        left = 3000
        while left:
            left -= len(peer.recv(left))


def gone(client: Client, seconds: float = 20) -> bool:
    """Whether all flows go, after all sockets were closed."""
    deadline = time.monotonic() + seconds
    while client.flows() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not client.flows()


def test_descriptors_that_cannot_be_tagged(client: Client) -> None:
    client.set_job(1)
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        left, right = os.pipe()
        stack.callback(os.close, left)
        stack.callback(os.close, right)
        sender, _ = map(enter, connected("mltcp"))
        file = os.open("/proc/self/status", os.O_RDONLY)
        stack.callback(os.close, file)
        path_only = os.open("/proc/self/status", os.O_PATH)
        stack.callback(os.close, path_only)
        event = os.eventfd(0)
        stack.callback(os.close, event)
        listener = enter(socket.create_server(("127.0.0.1", 0)))
        choose(listener, "mltcp")
        new = enter(socket.socket())
        choose(new, "mltcp")
        other = enter(socket.socket())
        other.connect(listener.getsockname())
        choose(other, "reno")
        datagram = enter(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        raw = enter(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP))
        local, _ = map(enter, socket.socketpair())
        netlink = enter(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
        packet = enter(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        strangers = [datagram, raw, local, netlink, packet]
        with contextlib.suppress(OSError):  # where the kernel has it
            mptcp = enter(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
            strangers.append(mptcp)
        for take_off in (False, True):

            def ask(fd: int, take_off: bool = take_off) -> None:
                if take_off:
                    client.untag(fd)
                else:
                    client.tag(fd, 1)

            for fd in (1000, 2**31 - 1, path_only):
                with refused(errno.EBADF, "not a socket"):
                    ask(fd)
            for fd in (left, right, file, event):
                with refused(errno.ENOTSOCK, "not a socket"):
                    ask(fd)
            for stranger in strangers:
                with refused(errno.EOPNOTSUPP, "not a TCP socket"):
                    ask(stranger.fileno())
            for useless in (listener, new, other):
                with refused(errno.ENOTCONN, "not connected, or not under MLTCP"):
                    ask(useless.fileno())
            with refused(errno.ERANGE):
                ask(-1)
            ask(sender.fileno())
        with refused(errno.ENOENT, "no such job"):
            client.tag(sender.fileno(), 2)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_in_every_state(client: Client, family: int) -> None:
    client.set_job(1)

    def is_tagged(sender: socket.socket) -> bool:
        port = sender.getsockname()[1]
        return [flow.job_id for flow in client.flows() if flow.local_port == port] == [1]

    sender, peer = connected("mltcp_cubic", family)
    with sender, peer:
        peer.shutdown(socket.SHUT_WR)  # close-wait
        client.tag(sender.fileno(), 1)
        exchange(sender, peer)
        assert is_tagged(sender)
        client.untag(sender.fileno())
        sender.shutdown(socket.SHUT_WR)
        with contextlib.suppress(genl.NetlinkError):  # its last ACK may be on the way
            client.tag(sender.fileno(), 1)
    sender, peer = connected("mltcp_cubic", family)
    with sender, peer:
        sender.shutdown(socket.SHUT_WR)  # fin-wait
        client.tag(sender.fileno(), 1)
        assert is_tagged(sender)
    sender, peer = connected("mltcp_cubic", family)
    with sender:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()  # reset: closed without having been closed here
        with refused(errno.ENOTCONN):
            client.tag(sender.fileno(), 1)
        client.untag(sender.fileno())
        choose(sender, "reno")
        choose(sender, "mltcp")
        with refused(errno.ENOTCONN):
            client.tag(sender.fileno(), 1)
    assert gone(client)


def test_switching_while_it_connects() -> None:
    """Its state is made when it has connected; see need_state() in kmod/mltcp_cc.c."""
    loss = ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "loss", "100%"]
    with elsewhere(), socket.create_server(("127.0.0.1", 0)) as server, Client() as here:
        here.set_job(1)
        subprocess.run(loss, check=True)
        sender = socket.socket()
        sender.setblocking(False)
        sender.connect_ex(server.getsockname())
        choose(sender, "mltcp")
        with refused(errno.ENOTCONN):
            here.tag(sender.fileno(), 1)
        assert here.flows() == []
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
        peer, _ = server.accept()  # the SYN comes again after a second
        sender.setblocking(True)
        with sender, peer:
            here.tag(sender.fileno(), 1)
            (flow,) = here.flows()
            assert (flow.job_id, flow.state) == (1, "established")
            exchange(sender, peer)
            (flow,) = here.flows()
            assert flow.acks > 0


@pytest.mark.parametrize(
    ("before", "after"), [("mltcp_cubic", "reno"), ("bbr", "mltcp"), ("mltcp", "mltcp_dctcp")]
)
def test_a_route_takes_over_while_the_first_data_is_awaited(
    client: Client, before: str, after: str
) -> None:
    """The kernel then changes the operations without release or init."""
    with elsewhere():
        write_sysctl("net.ipv4.tcp_fastopen", "1543")  # 0x607: without cookies
        route = ["ip", "route", "replace", "local", "127.0.0.1", "dev", "lo", "table", "local"]
        subprocess.run([*route, "congctl", after], check=True)
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)
            sender.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
            sender.connect(server.getsockname())
            choose(sender, before)
            sender.sendall(b"first")
            assert chosen(sender) == after
            peer, _ = server.accept()
            with peer:
                assert peer.recv(5) == b"first"
                exchange(sender, peer)
                names = [flow.congestion_control for flow in client.flows()]
                assert names.count(after) == (2 if after.startswith("mltcp") else 0)
                assert not [name for name in names if name not in (before, after)]
        assert gone(client)


def test_a_listener_hands_its_congestion_control_on(client: Client) -> None:
    client.set_job(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        choose(server, "mltcp_cubic")
        assert client.flows() == []
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                sender = stack.enter_context(socket.create_connection(server.getsockname()))
                peer = stack.enter_context(server.accept()[0])
                assert chosen(peer) == "mltcp_cubic"
                client.tag(peer.fileno(), 1)
                exchange(peer, sender)
                choose(server, "reno")  # doesn't change the children
                choose(server, "mltcp_cubic")
            assert [flow.job_id for flow in client.flows()] == [1] * 20
            # One that nobody accepts, and one that becomes a listener itself.
            stack.enter_context(socket.create_connection(server.getsockname()))
            libc.connect(peer.fileno(), b"\0" * 16, 16)  # AF_UNSPEC: disconnect
            peer.bind(("127.0.0.1", 0))
            peer.listen()
            child = stack.enter_context(socket.create_connection(peer.getsockname()))
            accepted = stack.enter_context(peer.accept()[0])
            assert chosen(accepted) == "mltcp_cubic"
            exchange(accepted, child)
    assert gone(client)


@pytest.mark.parametrize("name", MODULE_NAMES)
def test_the_same_socket_connects_again_and_again(client: Client, name: str) -> None:
    client.set_job(1)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        choose(sender, name)
        for ecn in ("0", "1", "0", "1"):
            write_sysctl("net.ipv4.tcp_ecn", ecn)
            sender.connect(server.getsockname())
            with server.accept()[0] as peer:
                assert chosen(sender) == name
                client.tag(sender.fileno(), 1)
                exchange(sender, peer)
                assert [flow.job_id for flow in client.flows()] == [1]
            assert not libc.connect(sender.fileno(), b"\0" * 16, 16)
            assert client.flows() == []
            assert chosen(sender) == name
    write_sysctl("net.ipv4.tcp_ecn", "2")


@pytest.mark.parametrize("ecn", ["0", "1"])
def test_dctcp_with_and_without_ecn(client: Client, ecn: str) -> None:
    """Its base puts other operations in its place without ECN; references must come out even."""
    with elsewhere():
        write_sysctl("net.ipv4.tcp_ecn", ecn)
        for name in ("mltcp_dctcp", "dctcp"):
            for _ in range(20):
                sender, peer = connected(name)
                with sender, peer:
                    exchange(sender, peer)
                    choose(sender, "reno")
                    choose(sender, "mltcp_dctcp")
                    exchange(sender, peer)
                    choose(sender, "dctcp")
                    choose(sender, name)
                    exchange(sender, peer)
        with socket.create_server(("127.0.0.1", 0)) as server:
            choose(server, "mltcp_dctcp")
            for _ in range(20):
                with socket.create_connection(server.getsockname()) as sender:
                    server.accept()[0].close()
    assert gone(client)


def test_the_callers_that_may_not(client: Client) -> None:
    client.set_job(1)
    sender, peer = connected("mltcp")
    with sender, peer:

        def refuses(asking: Client) -> None:
            for change in (
                lambda: asking.set_job(2),
                lambda: asking.set_job(1),
                lambda: asking.delete_job(1),
                lambda: asking.tag(sender.fileno(), 1),
                lambda: asking.untag(sender.fileno()),
            ):
                with refused(errno.EPERM):
                    change()
            assert asking.jobs() == [1]
            assert asking.status(Attribute.JOBS) == 1
            asking.flows()

        def unprivileged() -> None:
            os.setresuid(NOBODY, NOBODY, 0)
            refuses(client)  # root opened it, but doesn't ask
            with Client() as own:
                refuses(own)
                os.setresuid(0, 0, 0)
                refuses(own)  # root asks, but didn't open it

        def lord_of_another_namespace() -> None:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            unshare(NEWUSER)
            with Client() as there:
                refuses(there)  # still root's namespace
            unshare(NEWNET)
            with Client() as own:
                own.set_job(1)
                with refused(errno.EPERM, "socket's namespace"):
                    own.tag(sender.fileno(), 1)
                with refused(errno.EPERM, "socket's namespace"):
                    own.untag(sender.fileno())
                with socket.create_server(("127.0.0.1", 0)) as server:
                    choose(server, "mltcp")  # anyone may choose it
                assert own.flows() == []
                own.delete_job(1)

        client.tag(sender.fileno(), 1)
        in_child(unprivileged)
        in_child(lord_of_another_namespace)
        (tagged,) = (flow for flow in client.flows() if flow.job_id)
        assert tagged.job_id == 1
    assert client.jobs() == [1]


def test_who_sees_whose_flows(client: Client) -> None:
    """The initial namespace's administrator all; others, there too, those of their own."""
    here, peer_here = connected("mltcp")
    with elsewhere(), Client() as there:
        foreign, peer_there = connected("mltcp")
        (seen,) = (flow.netns for flow in there.flows() if flow.state == "established")

        def unprivileged() -> None:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            assert {flow.netns for flow in there.flows()} == {seen}

        in_child(unprivileged)

    def unprivileged_here() -> None:
        os.setresuid(NOBODY, NOBODY, NOBODY)
        with Client() as own:
            assert [flow.netns for flow in own.flows()] == [os.stat("/proc/self/ns/net").st_ino]
            assert own.status(Attribute.FLOWS) == 1

    with here, peer_here, foreign, peer_there:
        assert len(client.flows()) == client.status(Attribute.FLOWS) == 2
        in_child(unprivileged_here)
    assert gone(client)


def test_a_dump_of_the_jobs_takes_no_attribute(client: Client) -> None:
    client.set_job(1)
    with refused(errno.EINVAL):  # 6.1 gives such a refusal no text
        client.socket.dump(Command.JOB_GET, {Attribute.JOB_ID: struct.pack("=I", 1)})
    assert client.jobs() == [1]


def test_the_table_of_jobs_is_full(client: Client) -> None:
    numbers = [2**32 - 1 - 7919 * number for number in range(JOBS_MAX)]
    for number in numbers:
        client.set_job(number)
    with refused(errno.ENOSPC, "table of jobs is full"):
        client.set_job(1)
    client.set_job(numbers[5])  # there is one already
    assert client.jobs() == sorted(numbers)
    assert client.status(Attribute.JOBS) == JOBS_MAX
    with elsewhere(), Client() as there:
        there.set_job(1)
        assert there.jobs() == [1]
    client.delete_job(numbers[0])
    client.set_job(1)
    with refused(errno.ENOSPC, "table of jobs is full"):
        client.set_job(2)
    for number in [1, *numbers[1:]]:
        client.delete_job(number)
    assert client.jobs() == []
    with refused(errno.ENOENT, "no such job"):
        client.delete_job(1)


def test_a_namespace_goes_before_its_flows_and_jobs(client: Client) -> None:
    """Its sockets are tagged with jobs here, and sockets from here with its jobs."""
    client.set_job(1)
    here, peer_here = connected("mltcp")
    with elsewhere(), Client() as there:
        there.set_job(1)
        foreign, peer_there = connected("mltcp_cubic")
        own, peer_own = connected("mltcp")
        client.tag(foreign.fileno(), 1)
        there.tag(here.fileno(), 1)
        there.tag(own.fileno(), 1)
        for ends in ((here, peer_here), (foreign, peer_there), (own, peer_own)):
            exchange(*ends)
    own.close()
    peer_own.close()
    foreign.close()
    peer_there.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        exchange(here, peer_here)
        (flow,) = (flow for flow in client.flows() if flow.job_id)
        if not flow.active:
            break
        time.sleep(0.1)
    assert not flow.active, "the namespace's job outlives it"
    client.tag(here.fileno(), 1)
    exchange(here, peer_here)
    client.delete_job(1)
    exchange(here, peer_here)
    here.close()
    peer_here.close()
    assert gone(client)


def test_unloading_during_a_dump(client: Client) -> None:
    with contextlib.ExitStack() as stack:
        for i in range(300):
            stack.enter_context(pair(MODULE_NAMES[i % 4]))
        request = struct.pack("=IHHIIBBH", 20, client.socket.id, 0x301, 9, 0, 7, 1, 0)
        reader = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        reader.send(request)
        assert len(reader.recv(1 << 16)) > 1000
    assert gone(client)
    client.socket.close()
    with pytest.raises(OSError, match="delete_module"):
        remove(seconds=1)  # the rest of the dump is still to come
    reader.close()
    remove()


def test_a_listener_that_never_reads(client: Client) -> None:
    client.set_job(1)
    deaf = genl.GenericSocket(GENL_NAME)
    deaf.join("iterations", 1)
    keen = genl.GenericSocket(GENL_NAME)
    keen.join("iterations", 1 << 20)
    sender, peer = connected("mltcp")
    with sender, peer:
        client.tag(sender.fileno(), 1)
        for _ in range(100):
            exchange(sender, peer, 1)
            time.sleep(0.002)
    heard = []
    while more := keen.notifications(0.2):
        heard += more
    assert len(heard) > 50
    assert deaf.dropped() > len(heard) / 2
    assert client.status(Attribute.DROPPED) >= deaf.dropped()
    deaf.close()
    keen.close()


@pytest.mark.parametrize(
    ("count", "user"),
    [
        (50_000, 0),
        pytest.param(1_000_000, 0, marks=pytest.mark.full),
        pytest.param(1_000_000, NOBODY, marks=pytest.mark.full),
    ],
)
def test_random_messages(count: int, user: int) -> None:
    done = subprocess.run([PROGRAMS / "fuzz_netlink", str(count), str(count), str(user)])
    assert done.returncode == 0


def test_a_sender_that_sleeps_with_its_lock() -> None:
    assert subprocess.run([PROGRAMS / "stalled_sender"]).returncode == 0


def stress(seconds: int, seed: int, *names: str) -> None:
    words = [str(seconds), str(seed), FILE, *names]
    done = subprocess.run([PROGRAMS / "stress", *words])
    assert done.returncode == 0


@pytest.mark.parametrize("seconds", [10, pytest.param(300, marks=pytest.mark.full)])
def test_everything_at_once(seconds: int) -> None:
    remove()
    stress(seconds, seconds, *MODULE_NAMES, *KERNELS_OWN)


@pytest.mark.bpf
@pytest.mark.full
def test_switching_between_base_bpf_and_module() -> None:
    """The eBPF backend has one of the names, the module the others."""
    remove()
    bpf = get_backend("bpf")
    bpf.load(["mltcp"])
    try:
        stress(120, 120, *MODULE_NAMES, "reno", "cubic")
        remove()
    finally:
        bpf.unload()


@pytest.mark.parametrize("scenario", ["crossed-syns", "connects-again", "receives-only"])
def test_unusual_handshakes(scenario: str) -> None:
    """Nothing of a socket stays behind, and DCTCP's peer hears what DCTCP would tell it."""
    assert subprocess.run([PROGRAMS / "handshakes", scenario]).returncode == 0


FAILSLAB = Path("/sys/kernel/debug/failslab")


@contextlib.contextmanager
def no_memory() -> Iterator[None]:
    """No flow gets its state."""
    settings = {"probability": 100, "times": -1, "verbose": 0, "cache-filter": "Y"}
    for name, value in settings.items():
        (FAILSLAB / name).write_text(str(value))
    (SLAB / "failslab").write_text("1")
    try:
        yield
    finally:
        (SLAB / "failslab").write_text("0")
        (FAILSLAB / "probability").write_text("0")


def test_without_memory_a_flow_is_its_base_and_gets_its_state_later() -> None:
    if not FAILSLAB.exists():
        pytest.skip("this kernel fails no allocation on purpose: it takes a debug kernel")
    cc_info = 26  # TCP_CC_INFO, of DCTCP: enabled, CE state, alpha, bytes marked, bytes
    with contextlib.ExitStack() as stack:
        stack.enter_context(elsewhere())
        here = stack.enter_context(Client())
        here.set_job(1)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        choose(server, "dctcp")  # a SYN of DCTCP asks for ECN in a way that only its like answers
        sender = stack.enter_context(socket.socket())
        choose(sender, "mltcp_dctcp")
        with no_memory():
            sender.connect(server.getsockname())
            peer = stack.enter_context(server.accept()[0])
            exchange(sender, peer, 50)
            assert here.flows() == []
            with refused(errno.ENOTCONN):
                here.tag(sender.fileno(), 1)
            info = sender.getsockopt(socket.IPPROTO_TCP, cc_info, 16)
            enabled, _, alpha, _, _ = struct.unpack("=HHIII", info)
            # It starts at 1024, and falls with each window that came without a mark.
            assert enabled
            assert alpha < 1024
        deadline = time.monotonic() + 60
        while not here.flows() and time.monotonic() < deadline:
            time.sleep(0.1)  # it asks for memory once a second, when an ACK comes
            exchange(sender, peer, 1)
        here.tag(sender.fileno(), 1)
        assert [flow.job_id for flow in here.flows()] == [1]


def test_each_namespace_has_its_own_table(client: Client) -> None:
    """Dumps of all go from one to the next, whatever comes and goes between."""
    with contextlib.ExitStack() as stack:
        inside = set()
        for _ in range(5):
            with elsewhere(), Client() as there:
                assert there.flows() == []
                for _ in range(40):
                    sender, peer = map(stack.enter_context, connected("mltcp"))
                    exchange(sender, peer, 1)
                inside.add(os.stat("/proc/thread-self/ns/net").st_ino)
                assert {flow.netns for flow in there.flows()} <= inside
                assert there.status(Attribute.FLOWS) == len(there.flows()) == 40
        found = client.flows()
        assert {flow.netns for flow in found} == inside
        assert len({flow.cookie for flow in found}) == len(found) == 200
        assert client.status(Attribute.FLOWS) == 200
    assert gone(client)
