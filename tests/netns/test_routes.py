# SPDX-License-Identifier: BSD-2-Clause
"""Microsecond timestamps on routes: given on request, read back, and taken back on every way
out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netns.backends_here import PARAMETERS, fresh
from netns.connections import connection
from netns.following import rules
from netns.trainings import agent
from pyroute2 import IPRoute

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend, Flow, Job, JobParams
from mltcp_tools.kernel.host.routes import leading_to, routes, set_fine
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside, remove_namespace
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Network
from mltcp_tools.live.attach.tcp_usec_ts import ROUTES_DIR, given, recorded, take_back

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
    take_back()


@pytest.fixture
def sender(network: Network) -> Iterator[str]:
    """In the sender's namespace."""
    with inside(network.senders[0]):
        yield network.senders[0]


def fine() -> dict[str, bool]:
    return {each.destination: each.fine for each in routes()}


def everything() -> list[tuple[object, ...]]:
    """Routes as the kernel tells them, but for the feature."""
    with IPRoute() as ip:
        messages = list(ip.route("dump", family=socket.AF_INET))
    return sorted(
        (
            each["dst_len"], each["proto"], each["scope"], each["type"], each["flags"],
            *(str(each.get_attr(name)) for name in ("RTA_DST", "RTA_GATEWAY", "RTA_OIF",
                                                    "RTA_PREFSRC", "RTA_PRIORITY", "RTA_TABLE")),
        )
        for each in messages
    )  # fmt: skip


def has_fine_stamps(sock: socket.socket) -> bool:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    return bool(info[TCP_INFO_OPTIONS] & TCPI_OPT_USEC_TS)


@pytest.mark.parametrize(
    ("destination", "changed"),
    [("default", "0.0.0.0/0"), (RECEIVER_ADDRESS, "0.0.0.0/0"), ("0.0.0.0/0", "0.0.0.0/0"),
     ("10.0.1.254", "10.0.1.0/24"), ("10.0.1.0/24", "10.0.1.0/24")],
)  # fmt: skip
def test_a_route_has_them_until_they_are_taken_back(
    sender: str, destination: str, changed: str
) -> None:
    before = everything()
    with given([destination]) as done:
        assert done == [changed]
    assert fine() == PLAIN | {changed: True}
    assert everything() == before
    assert [each.destination for each in recorded()] == [changed]
    assert take_back() == [changed]
    assert fine() == PLAIN
    assert everything() == before
    assert not recorded()
    assert take_back() == []


def test_only_new_connections_take_the_route_features(
    network: Network,
) -> None:
    with connection(network, "reno") as before:
        with inside(network.senders[0]), given(["default"]):
            pass
        with connection(network, "reno") as meanwhile:
            assert has_fine_stamps(meanwhile)
            take_back()
            assert has_fine_stamps(meanwhile)
        assert not has_fine_stamps(before)
    with connection(network, "reno") as after:
        assert not has_fine_stamps(after)


def test_other_metrics_stay(sender: str) -> None:
    with IPRoute() as ip:
        gateway = "10.0.1.254"
        metrics = {"mtu": 1400, "features": 1}
        ip.route("add", dst="10.7.0.0/16", gateway=gateway, priority=7, metrics=metrics)
    (route,) = leading_to("10.7.0.0/16")
    for wanted in (True, False):
        set_fine(route, wanted)
        (now,) = leading_to("10.7.1.1")
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
    (before,) = leading_to("10.8.0.0/16")
    set_fine(before, True)
    (after,) = leading_to("10.8.0.0/16")
    assert after.fine
    assert str(after.message.get_attr("RTA_MULTIPATH")) == str(
        before.message.get_attr("RTA_MULTIPATH")
    )


def test_where_what_follows_fails_they_are_taken_back_at_once(sender: str) -> None:
    with contextlib.suppress(RuntimeError), given(["default"]):
        assert fine()["0.0.0.0/0"]
        raise RuntimeError
    assert fine() == PLAIN
    assert not recorded()


def test_a_route_that_had_them_before_keeps_them(sender: str) -> None:
    set_fine(leading_to("default")[0], True)
    with given(["default", "10.0.1.0/24"]) as done:
        assert done == ["10.0.1.0/24"]
    take_back()
    assert fine() == PLAIN | {"0.0.0.0/0": True}


def test_route_changed_or_removed_meanwhile_is_left_alone(sender: str) -> None:
    with given(["default", "10.0.1.0/24"]):
        pass
    with IPRoute() as ip:
        ip.flush_routes(family=socket.AF_INET, dst_len=0)
        ip.route("add", dst="default", gateway="10.0.1.253")
    assert take_back() == ["10.0.1.0/24"]
    with IPRoute() as ip:
        (route,) = ip.route("get", dst=RECEIVER_ADDRESS)
    assert route.get_attr("RTA_GATEWAY") == "10.0.1.253"


def test_a_namespace_that_is_gone_takes_its_routes_along(network: Network) -> None:
    with inside(network.senders[0]), given(["default"]):
        pass
    assert recorded()
    remove_namespace(network.senders[0])
    network.names.remove(network.senders[0])
    assert take_back() == []
    assert not recorded()


def test_what_is_no_route_is_refused_and_nothing_changes(sender: str) -> None:
    for wrong, error, words in (
        ("10.0.0.0/99", UsageError, "no address, network"),
        ("10.99.0.0/16", HostError, "There is no route to 10.99.0.0/16"),
        ("10.0.1.1", HostError, "this host's own"),
        ("2001:db8::1", HostError, "There is no route to 2001:db8::1"),
    ):
        with pytest.raises(error, match=words), given(["default", wrong]):
            pytest.fail("it was accepted")
    assert fine() == PLAIN
    assert not recorded()


def test_kernel_without_feature_says_so_and_nothing_changes(
    sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those before 6.7; none has this one."""
    monkeypatch.setattr("mltcp_tools.kernel.host.routes._TCP_USEC_TS", 1 << 30)
    with pytest.raises(HostError, match=r"kernels before 6\.7"), given(["default"]):
        pytest.fail("it was accepted")
    assert fine() == PLAIN
    assert not recorded()


def test_a_record_that_is_none_is_not_believed(sender: str) -> None:
    with given(["default"]):
        pass
    path = ROUTES_DIR / "fine-stamps.json"
    good = path.read_text()
    try:
        for bad in ("{", "[]", '{"version": 1}', json.dumps(json.loads(good) | {"version": 9})):
            path.write_text(bad)
            with pytest.raises(HostError, match="can't be trusted"):
                take_back()
    finally:
        path.write_text(good)
    assert take_back() == ["0.0.0.0/0"]


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
            set_fine(leading_to("default")[0], True)
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


@pytest.fixture(params=PARAMETERS)
def loadable(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a backend that isn't loaded."""
    with fresh(request.param) as found:
        found.unload(force=True)
        yield request.param


def test_load_gives_them_and_unload_takes_them_back(
    loadable: str, network: Network, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--backend", loadable]
    with inside(network.senders[0]):
        assert main(["load", *options, "--tcp-usec-ts", "default"]) == 0
        assert fine() == PLAIN | {"0.0.0.0/0": True}
        assert "Microsecond timestamps: 0.0.0.0/0." in capfd.readouterr().err
    assert main(["unload", *options]) == 0  # from wherever
    assert "taken off: 0.0.0.0/0." in capfd.readouterr().err
    with inside(network.senders[0]):
        assert fine() == PLAIN


def test_the_agent_gives_them_while_it_runs(
    backend: Backend, sender: str, mark: str, tmp_path: Path
) -> None:
    given_by_hand = leading_to("10.0.1.0/24")[0]
    set_fine(given_by_hand, True)
    before = fine()
    text = rules(mark, tcp_usec_ts="[default, 10.0.1.0/24]")
    with agent(tmp_path, text) as running:
        running.wait_for("Microsecond timestamps: 0.0.0.0/0.")
        assert all(fine().values())
        assert [each.destination for each in recorded()] == ["0.0.0.0/0"]
        running.stop()
    assert fine() == before
    assert not recorded()


def test_what_a_killed_agent_gave_is_taken_back_by_unload(
    backend: Backend, sender: str, mark: str, tmp_path: Path
) -> None:
    with agent(tmp_path, rules(mark, tcp_usec_ts="[default]")) as running:
        running.stop(signal.SIGKILL)
    assert fine()["0.0.0.0/0"]
    assert main(["unload", "--force"]) == 0
    assert fine() == PLAIN
    assert not recorded()


def test_nothing_is_loaded_where_there_is_no_such_route(
    loadable: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["load", "--backend", loadable, "--tcp-usec-ts", "203.0.113.0/24"]) == 3
    assert "There is no route to 203.0.113.0/24" in capfd.readouterr().err
    assert "mltcp" not in _available()


def _available() -> list[str]:
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def test_both_ends_of_the_testbed_have_them(network: Network) -> None:
    network.stamp_finely()
    for each in (network.receiver, *network.senders):
        with inside(each):
            assert all(fine().values())
    with connection(network, "reno") as sock:
        assert has_fine_stamps(sock)
