# SPDX-License-Identifier: BSD-2-Clause
"""Microsecond timestamps on routes, and the flows that use them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from netns.backends_here import PARAMETERS, fresh
from netns.connections import connection
from pyroute2 import IPRoute

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.backends.base import Backend, Flow, Job, JobParams
from mltcp_tools.kernel.host.routes import Route, routes, set_fine
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import Network

TCP_INFO_OPTIONS = 5  # offset of tcpi_options in struct tcp_info
TCPI_OPT_USEC_TS = 64

PLAIN = {"10.0.1.0/24": False, "0.0.0.0/0": False}


def _have() -> bool:
    """Return whether this kernel has microsecond timestamps."""
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1])) >= (6, 7)


pytestmark = pytest.mark.skipif(
    not _have(), reason="kernels before 6.7 have no microsecond timestamps"
)


@pytest.fixture
def network() -> Iterator[Network]:
    """One sender and a receiver, whose routes are the network's own to change."""
    with RunLock() as lock, Network(lock.id, Link(), {}, 1) as found:
        yield found


@pytest.fixture
def sender(network: Network) -> Iterator[str]:
    """In the sender's namespace."""
    with inside(network.senders[0]):
        yield network.senders[0]


def fine() -> dict[str, bool]:
    return {each.destination: each.fine for each in routes()}


def route_to(destination: str) -> Route:
    """Return the route to that network."""
    return next(each for each in routes() if each.destination == destination)


def has_fine_stamps(sock: socket.socket) -> bool:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return bool(info[TCP_INFO_OPTIONS] & TCPI_OPT_USEC_TS)


def test_only_new_connections_take_the_route_features(
    network: Network,
) -> None:
    with connection(network, "reno") as before:
        with inside(network.senders[0]):
            default = route_to("0.0.0.0/0")
            set_fine(default, True)
        with connection(network, "reno") as meanwhile:
            assert has_fine_stamps(meanwhile)
            with inside(network.senders[0]):
                set_fine(default, False)
            assert has_fine_stamps(meanwhile)
        assert not has_fine_stamps(before)
    with connection(network, "reno") as after:
        assert not has_fine_stamps(after)


def test_other_metrics_stay(sender: str) -> None:
    with IPRoute() as ip:
        gateway = "10.0.1.254"
        metrics = {"mtu": 1400, "features": 1}
        ip.route("add", dst="10.7.0.0/16", gateway=gateway, priority=7, metrics=metrics)
    route = route_to("10.7.0.0/16")
    for wanted in (True, False):
        set_fine(route, wanted)
        now = route_to("10.7.0.0/16")
        assert now.fine == wanted
        assert dict(now.message.get_attr("RTA_METRICS")["attrs"]) == {
            "RTAX_MTU": 1400,
            "RTAX_FEATURES": 1 | 16 * wanted,
        }
        assert now.priority == 7


def test_routes_over_several_gateways_keep_them(sender: str) -> None:
    hops = [{"gateway": "10.0.1.254", "hops": 0}, {"gateway": "10.0.1.253", "hops": 3}]
    with IPRoute() as ip:
        ip.route("add", dst="10.8.0.0/16", multipath=hops)
    before = route_to("10.8.0.0/16")
    set_fine(before, True)
    after = route_to("10.8.0.0/16")
    assert after.fine
    assert str(after.message.get_attr("RTA_MULTIPATH")) == str(
        before.message.get_attr("RTA_MULTIPATH")
    )


def test_kernel_without_feature_says_so_and_nothing_changes(
    sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those before 6.7; none has this one."""
    monkeypatch.setattr("mltcp_tools.kernel.host.routes._TCP_USEC_TS", 1 << 30)
    with pytest.raises(HostError, match=r"kernels before 6\.7"):
        set_fine(route_to("0.0.0.0/0"), True)
    assert fine() == PLAIN


@pytest.fixture(params=PARAMETERS)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh(request.param) as found:
        found.load(["mltcp"])
        yield found


def sent_until(backend: Backend, sock: socket.socket, enough: Callable[[Flow], bool]) -> Flow:
    """The flow, once it is as wanted: data is sent until then, for a minute at most."""
    deadline = time.monotonic() + 60
    while True:
        sock.send(bytes(20_000))
        (flow,) = backend.flows()
        if enough(flow) or time.monotonic() > deadline:
            return flow


@pytest.mark.parametrize("ends", ["both", "sender", "receiver"])
def test_a_flow_finds_out_whether_both_ends_have_them(
    backend: Backend, network: Network, ends: str
) -> None:
    if ends == "both":
        network.stamp_finely()
    else:
        with inside(network.senders[0] if ends == "sender" else network.receiver):
            set_fine(route_to("0.0.0.0/0"), True)
    # Flows look at stamps only where they may yield, which takes the size of an iteration.
    backend.set_job(Job(1, "told", JobParams(total_bytes=1_000_000)))
    with connection(network, "mltcp") as sock:
        backend.tag(sock.fileno(), 1)
        begin = time.monotonic()
        if ends == "both":
            assert sent_until(backend, sock, lambda flow: flow.tcp_usec_ts).tcp_usec_ts
        else:
            assert sent_until(backend, sock, lambda flow: flow.queue_us > 0).queue_us
            # Longer than it takes to find out.
            flow = sent_until(backend, sock, lambda _: time.monotonic() > begin + 1)
            assert not flow.tcp_usec_ts


def test_both_ends_of_the_testbed_have_them(network: Network) -> None:
    network.stamp_finely()
    for each in (network.receiver, *network.senders):
        with inside(each):
            assert all(fine().values())
    with connection(network, "reno") as sock:
        assert has_fine_stamps(sock)
