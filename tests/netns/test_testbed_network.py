# SPDX-License-Identifier: BSD-2-Clause
"""The network of a variant: what is built is what was asked for, and nothing stays.

s1 --- router === receiver          === the bottleneck
s2 ---/
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading

import pytest
from pyroute2 import IPRoute

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.kernel.host.facts import read_sysctl
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.leftovers import LOCKS, RunLock, remove_leftovers
from mltcp_tools.lab.testbed.namespaces import NAMESPACES, PREFIX, inside
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell, local_end
from mltcp_tools.lab.testbed.paths import ANY_ADDRESS, Paths
from mltcp_tools.lab.testbed.qdiscs import (
    BOTTLENECK,
    add_bottleneck,
    link_counters,
    remove_qdisc,
)


def namespaces(run: str) -> list[str]:
    return sorted(path.name for path in NAMESPACES.glob(f"{PREFIX}{run}-*"))


def test_the_kernel_has_what_was_asked_for() -> None:
    rate, queue = 200_000_000, 30_000
    with RunLock() as lock:
        with Dumbbell(lock.id, Link(rate, queue), {"net.ipv4.tcp_sack": "0"}, 2) as network:
            found = network.read_back()
            assert len(namespaces(lock.id)) == 4
            with inside(network.receiver):
                assert read_sysctl("net.ipv4.tcp_sack") == "0"
        assert namespaces(lock.id) == []
    for name in ("bottleneck", "reverse"):
        assert (found[name]["rate"], found[name]["queue"]) == (rate, queue)
        # tc's clock has a grain of 64 ns, and pyroute2 counts whole microseconds
        assert found[name]["burst"] == pytest.approx(20 * 1024, abs=rate / 8e6 + 1)
    assert len(found["offloads"]) == 6
    assert not any(found["offloads"].values())
    assert found["sysctls"]["net.ipv4.tcp_no_metrics_save"] == "1"
    assert found["sysctls"]["net.ipv4.tcp_sack"] == "0"


def test_bidirectional_traffic_is_not_dropped_in_host_queues() -> None:
    link, size = Link(100_000_000, 10_000), 4_000_000
    with RunLock() as lock, Dumbbell(lock.id, link, {}, 1, both_ways=True) as network:
        found = network.read_back()
        _send(network, size, back=True)
        there = network.counters()
        with inside(network.far):
            back = link_counters(BOTTLENECK, link)
        with inside(network.receiver), IPRoute() as ip:
            (interface,) = ip.link_lookup(ifname="to-router")
            qdiscs = [each for each in ip.get_qdiscs(index=interface) if each["index"] == interface]
    assert found["reverse"]["queue"] == link.queue
    assert back.drops > 0, "nothing was dropped, so nothing is shown"
    assert back.bytes > size > there.bytes
    assert [each.get_attr("TCA_KIND") for each in qdiscs] == ["noqueue"]


def test_network_that_cannot_keep_packet_order_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {8000})
    with RunLock() as lock:
        with pytest.raises(HostError, match="in order"), Dumbbell(lock.id, Link(), {}, 1):
            pass
        assert namespaces(lock.id) == []


def _send(network: Dumbbell, size: int, back: bool = False) -> None:
    """Send so many bytes from the first sender to the receiver, or back, until all have come."""
    with inside(network.receiver):
        listener = socket.create_server((RECEIVER_ADDRESS, 0))
    with listener, inside(network.senders[0]), socket.socket() as sock:
        sock.connect(listener.getsockname())
        taken, _ = listener.accept()
        with taken:
            source, sink = (taken, sock) if back else (sock, taken)
            reader = threading.Thread(target=_drain, args=(sink,))
            reader.start()
            source.sendall(bytes(size))
            source.shutdown(socket.SHUT_WR)
            reader.join()


def _drain(sock: socket.socket) -> None:
    while sock.recv(1 << 20):
        pass


def test_paths_cross_their_links_and_no_others() -> None:
    """s1 over one, s2 over two and one: each leaves its bytes in the counters of its own links."""
    links = {"one": Link(100_000_000), "two": Link(50_000_000, 60_000)}
    size = 200_000
    with RunLock() as lock:
        with Paths(lock.id, links, {}, [("one",), ("two", "one")]) as network:
            found = network.read_back()
            carried = []
            for sender, address in zip(network.senders, network.addresses, strict=True):
                before = {name: _bytes(network, name) for name in links}
                with inside(network.receiver):
                    listener = socket.create_server((ANY_ADDRESS, 0))
                with listener:
                    with inside(sender):
                        client = socket.create_connection((address, listener.getsockname()[1]))
                    server, _ = listener.accept()
                    with client, server:
                        client.sendall(bytes(size))
                        assert len(server.recv(size, socket.MSG_WAITALL)) == size
                carried.append({name: _bytes(network, name) - before[name] for name in links})
            total = network.counters()
        assert namespaces(lock.id) == []
    assert found["links"]["two"]["bottleneck"]["rate"] == 50_000_000
    assert found["links"]["two"]["reverse"]["queue"] == 60_000
    assert not any(found["offloads"].values())
    first, second = carried
    assert first["one"] > size > first["two"] == 0
    assert second["one"] > size < second["two"]
    assert total.bytes == sum(sum(each.values()) for each in carried)


def _bytes(network: Paths, link: str) -> int:
    """Return what a link has carried towards the receiver."""
    run_id = network.receiver.removeprefix(PREFIX).partition("-")[0]
    with inside(f"{PREFIX}{run_id}-{link}-in"):
        return link_counters("bottleneck", network.links[link]).bytes


def test_every_interface_has_the_mtu_that_is_wanted() -> None:
    with RunLock() as lock, Dumbbell(lock.id, Link(mtu=9000), {}, 1, both_ways=True) as network:
        for namespace in (network.router, network.far, network.receiver, *network.senders):
            with inside(namespace), IPRoute() as ip:
                links = {
                    link.get_attr("IFLA_IFNAME"): link.get_attr("IFLA_MTU")
                    for link in ip.get_links()
                }
            assert {mtu for name, mtu in links.items() if name != "lo"} == {9000}, links


def test_a_qdisc_that_someone_else_set_is_replaced() -> None:
    with (
        RunLock() as lock,
        Dumbbell(lock.id, Link(), {}, 1) as network,
        inside(network.senders[0]),
    ):
        interface, _ = local_end(RECEIVER_ADDRESS)
        words = f"tc qdisc replace dev {interface} root tbf rate 7mbit burst 20kb limit 20kb"
        for _ in range(2):
            subprocess.run(words.split(), check=True)
            remove_qdisc(interface)
            remove_qdisc(interface)
            add_bottleneck(interface, Link(50_000_000, 40_000))
            shown = subprocess.run(
                ["tc", "qdisc", "show", "dev", interface],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
            assert "rate 50Mbit" in shown
            assert "7Mbit" not in shown


def test_sysctl_outside_namespaces_is_refused_and_nothing_stays() -> None:
    with RunLock() as lock:
        with (
            pytest.raises(UsageError, match=r"net\.core\.no_such can't be set"),
            Dumbbell(lock.id, Link(), {"net.core.no_such": "1"}, 1),
        ):
            pass
        assert namespaces(lock.id) == []


@pytest.mark.parametrize(
    ("link", "missing"),
    [
        (Link(delay=0.005), "CONFIG_NET_SCH_NETEM"),
        (Link(queue=1 << 30, aqm="red"), "CONFIG_NET_SCH_RED"),
        (Link(queue=3_028, aqm="threshold"), "CONFIG_NET_CLS_BPF"),
    ],
)
def test_delay_and_aqm_work_or_say_what_the_kernel_lacks(link: Link, missing: str) -> None:
    with RunLock() as lock:
        complaint = missing
        try:
            with Dumbbell(lock.id, link, {}, 1) as network:
                assert network.counters().marks == 0
        except HostError as error:
            complaint = str(error)
        assert missing in complaint
        assert namespaces(lock.id) == []


def test_only_dead_runs_namespaces_are_removed() -> None:
    with RunLock() as living, Dumbbell(living.id, Link(), {}, 1):
        with RunLock() as dead:
            network = Dumbbell(dead.id, Link(), {}, 1)
            network.__enter__()
            mark = LOCKS / f"{dead.id}.lock"
            content = mark.read_text()
        # What a kill leaves: the namespaces and the mark, but not the lock.
        mark.write_text(content)
        removed = remove_leftovers()
        assert {f"namespace {name}" for name in (network.router, network.receiver)} <= set(removed)
        assert namespaces(dead.id) == []
        assert not mark.exists()
        assert len(namespaces(living.id)) == 3
        assert (LOCKS / f"{living.id}.lock").exists()
