# SPDX-License-Identifier: BSD-2-Clause
"""The network of one variant: namespaces, veth pairs and the bottleneck, through pyroute2.

    mltcp-ID-s1 10.0.1.1 --- 10.0.1.254 \\
    mltcp-ID-s2 10.0.2.1 --- 10.0.2.254  mltcp-ID-router 10.0.0.254 === 10.0.0.1 mltcp-ID-receiver
        ...     to-router       from-s2 /                 bottleneck    bottleneck

`===` is the bottleneck: a tbf of the experiment's rate and queue on the egress of both its ends, so
that each direction has its own. Where the receiver sends, too, a second router is between the
bottleneck and it:

    ... router 10.0.255.254 === 10.0.255.1 mltcp-ID-far 10.0.0.254 --- 10.0.0.1 mltcp-ID-receiver
        bottleneck               bottleneck             to-receiver    to-router

For a queue of its own host that drops its packets TCP takes as a sign to wait, up to 200 ms for a
probe where nothing else is on its way; no wire tells it that. Where the experiment asks for delay,
netem holds back what the router sends to the senders; where it asks for loss, netem loses some of
what the senders send; where it asks for ECN, RED under the tbf or a BPF program before it marks.
Unless it wants offloads, those of segmentation and receiving are off everywhere, so that the queue
holds packets of one MSS and a 64 kB super-packet never passes a token bucket at once. A flow's
packets stay in order. ARP's entries are permanent, so that none is lost in a full queue; IPv6 is
off; metrics aren't kept from one connection to the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Self

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.ndmsg import NUD_PERMANENT

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.facts import read_sysctl
from mltcp_tools.lab.experiments.links import MTU, Link
from mltcp_tools.lab.runs.recorder import LinkCounters
from mltcp_tools.lab.testbed.namespaces import (
    NAMESPACES,
    PREFIX,
    enabled_offloads,
    inside,
    interfaces,
    keep_order,
    remove_namespace,
    switch_off_offloads,
    write_sysctl,
)
from mltcp_tools.lab.testbed.qdiscs import (
    BOTTLENECK,
    add_bottleneck,
    add_delay,
    add_host_qdisc,
    add_loss,
    link_counters,
    needs,
    read_bottleneck,
)

RECEIVER_ADDRESS = "10.0.0.1"
_BETWEEN = 255
"""The subnet between two routers."""
_NO_IPV6 = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
}


class Namespaces:
    """Namespaces that belong together: a context manager that builds them and takes them down.

    receiver, senders: those of the connections' ends.

    Entering raises HostError where the kernel lacks something and UsageError where a sysctl of the
    experiment isn't one of a namespace; either way nothing is left behind.
    """

    receiver: str
    senders: list[str]

    def __init__(self, sysctls: Mapping[str, str]) -> None:
        self.sysctls = _NO_IPV6 | dict(sysctls)
        self.names: list[str] = []
        self._pairs = 0

    def __enter__(self) -> Self:
        try:
            self.build()
            for namespace in self.names:
                with inside(namespace):
                    keep_order()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the namespaces; links and qdiscs go with them once no process is inside."""
        while self.names:
            remove_namespace(self.names.pop())

    def build(self) -> None:
        """Make the namespaces and what is in them."""
        raise NotImplementedError

    def create(self, namespace: str) -> None:
        """Make a namespace, with the sysctls."""
        self.names.append(namespace)
        try:
            netns.create(namespace)
        except OSError as error:
            raise HostError(
                f"The network namespace {namespace} can't be made ({error.strerror or error}); the"
                " kernel needs CONFIG_NET_NS, and a container must allow unshare and mount."
            ) from None
        with inside(namespace):
            for key, value in self.sysctls.items():
                write_sysctl(key, value)

    def pair(
        self, here: str, name: str, there: str, there_name: str, offloads: bool, mtu: int = MTU
    ) -> tuple[str, str]:
        """A veth pair between two namespaces, up, without addresses; the MACs of its ends."""
        number, self._pairs = self._pairs, self._pairs + 1
        mac, there_mac = (
            f"02:00:00:{number >> 8:02x}:{number & 255:02x}:{end:02x}" for end in (1, 2)
        )
        with open(NAMESPACES / there) as target, inside(here), IPRoute() as ip:
            peer = {"ifname": there_name, "address": there_mac, "net_ns_fd": target.fileno()}
            with needs("veth pairs (CONFIG_VETH)"):
                ip.link("add", ifname=name, kind="veth", address=mac, peer=peer)
        for namespace, interface in ((here, name), (there, there_name)):
            with inside(namespace), IPRoute() as ip:
                if not offloads:
                    switch_off_offloads(interface)
                ip.link("set", index=ip.link_lookup(ifname=interface)[0], mtu=mtu, state="up")
        return mac, there_mac

    def read_back_settings(self) -> dict[str, Any]:
        """`offloads`: per interface those of OFFLOADS that are on; `sysctls`: as set, everywhere.

        The sysctls are read in the namespace made last.
        """
        offloads: dict[str, list[str]] = {}
        for namespace in self.names:
            with inside(namespace):
                offloads |= {
                    f"{namespace}/{interface}": enabled_offloads(interface)
                    for interface in interfaces()
                }
        with inside(self.names[-1]):
            sysctls = {key: read_sysctl(key) for key in self.sysctls}
        return {"offloads": offloads, "sysctls": sysctls}


class Dumbbell(Namespaces):
    """The network for `senders` jobs over one link.

    `run_id` makes the namespaces' names unique. both_ways: the receiver sends, too. far: the
    namespace of the bottleneck's end towards the receiver.
    """

    def __init__(
        self,
        run_id: str,
        link: Link,
        sysctls: Mapping[str, str],
        senders: int,
        both_ways: bool = False,
    ) -> None:
        super().__init__(sysctls_of(link, sysctls))
        self.link = link
        self.router = f"{PREFIX}{run_id}-router"
        self.receiver = f"{PREFIX}{run_id}-receiver"
        self.far = f"{PREFIX}{run_id}-far" if both_ways else self.receiver
        self.senders = [f"{PREFIX}{run_id}-s{number}" for number in range(1, senders + 1)]

    def bottlenecks(self) -> list[tuple[str, Link]]:
        """(namespace, link) of the bottleneck's both directions, that to the receiver first."""
        return [(self.router, self.link), (self.far, self.link)]

    def counters(self) -> LinkCounters:
        """Counters of the bottleneck towards the receiver."""
        with inside(self.router):
            return link_counters(BOTTLENECK, self.link)

    def read_back(self) -> dict[str, Any]:
        """Return the network as the kernel says it is, for the run's records and for tests.

        `bottleneck` and `reverse`: rate in bit/s, queue and burst in bytes; the rest as
        `read_back_settings`.
        """
        description = self.read_back_settings()
        for name, namespace in (("bottleneck", self.router), ("reverse", self.far)):
            with inside(namespace):
                description[name] = read_bottleneck()
        return description

    def build(self) -> None:
        routers = [self.router] if self.far == self.receiver else [self.router, self.far]
        for namespace in (*routers, self.receiver, *self.senders):
            self.create(namespace)
        for namespace in routers:
            with inside(namespace):
                write_sysctl("net.ipv4.ip_forward", "1")
        if self.far == self.receiver:
            self._connect(self.router, self.receiver, BOTTLENECK, BOTTLENECK, 0)
        else:
            self._connect(self.router, self.far, BOTTLENECK, BOTTLENECK, _BETWEEN)
            self._connect(self.far, self.receiver, "to-receiver", "to-router", 0)
            with inside(self.router), IPRoute() as ip:
                ip.route("add", dst="10.0.0.0/24", gateway=f"10.0.{_BETWEEN}.1")
        for number, sender in enumerate(self.senders, 1):
            self._connect(self.router, sender, f"from-s{number}", "to-router", number)
        for namespace, link in self.bottlenecks():
            with inside(namespace):
                add_bottleneck(BOTTLENECK, link)
        if self.link.delay:
            with inside(self.router):
                for number in range(1, len(self.senders) + 1):
                    add_delay(f"from-s{number}", self.link)
        if self.link.qdisc != "none":
            for sender in self._sending():
                with inside(sender):
                    add_host_qdisc("to-router", self.link)
        if self.link.loss:
            for sender in self.senders:
                with inside(sender):
                    add_loss("to-router", self.link)

    def _sending(self) -> list[str]:
        """Hosts that send data through an interface of their own."""
        return [*self.senders, *([] if self.far == self.receiver else [self.receiver])]

    def _connect(
        self, router: str, namespace: str, router_end: str, other_end: str, subnet: int
    ) -> None:
        """A veth pair from a router to what has its default route there, with addresses, routes
        and neighbours."""
        link, ends = self.link, ((router, router_end), (namespace, other_end))
        macs = self.pair(*ends[0], *ends[1], link.offloads, link.mtu)
        addresses = f"10.0.{subnet}.254", f"10.0.{subnet}.1"
        for end, (where, interface) in enumerate(ends):
            with inside(where), IPRoute() as ip:
                index = ip.link_lookup(ifname=interface)[0]
                ip.addr("add", index=index, address=addresses[end], prefixlen=24)
                peer = {"dst": addresses[1 - end], "lladdr": macs[1 - end]}
                ip.neigh("add", **peer, ifindex=index, state=NUD_PERMANENT)
                if end:
                    ip.route("add", dst="default", gateway=addresses[0])


def sysctls_of(link: Link, sysctls: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the ends of `link`: an experiment's `sysctls`, and what the link
    needs.
    """
    return settings_of([link], sysctls)


def settings_of(links: Iterable[Link], sysctls: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the ends of paths over `links`."""
    settings = {"net.ipv4.tcp_no_metrics_save": "1"}
    ecn = any(link.marks for link in links)
    return settings | ({"net.ipv4.tcp_ecn": "1"} if ecn else {}) | dict(sysctls)


def local_end(address: str) -> tuple[str, str]:
    """The interface and the local address from which packets to `address` leave."""
    try:
        with IPRoute() as ip:
            route = ip.route("get", dst=address)[0]
            link = ip.get_links(route.get_attr("RTA_OIF"))[0]
    except NetlinkError as error:
        raise HostError(f"There is no route to {address} ({os.strerror(error.code)}).") from None
    return link.get_attr("IFLA_IFNAME"), route.get_attr("RTA_PREFSRC")
