# SPDX-License-Identifier: BSD-2-Clause
"""The network of an experiment over a fabric of leaves and spines, as namespaces.

    r1h1 --- r1h1-nic === leaf1 === spine1 === leaf2 === r2h1-nic --- r2h1
    r1h2 --- r1h2-nic ===/     \\=== spine2 ===/     \\=== r2h2-nic --- r2h2

`===` is a veth pair with a tbf of its link's rate and queue on both ends, `---` one that holds
nothing back: a queue of a host's own that drops its packets TCP takes as a sign to wait (see
network.py), so a host's first link begins at a router. Host h of rack r has an address for each
spine s, 10.s.r.h, and what goes to it takes that spine: so a connection's two
addresses say its paths ahead and back, plain routes lead it, and every variant of a repetition
takes the same paths, which the flow's hash chooses (experiments/fabric.py). The kernel's own
multipath routes hash with a key drawn at boot and with ports that change from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.ndmsg import NUD_PERMANENT

from mltcp_tools.lab.experiments.fabric import Fabric, rack_of
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.runs.recorder import LinkCounters
from mltcp_tools.lab.testbed.namespaces import (
    PREFIX,
    inside,
    write_sysctl,
)
from mltcp_tools.lab.testbed.network import Namespaces, settings_of
from mltcp_tools.lab.testbed.qdiscs import (
    add_bottleneck,
    link_counters,
    read_bottleneck,
)

# What the other end of every veth pair is called: routes need an address to go by.
_NEIGHBOUR = "169.254.0.1"
# Replies take another spine than what they answer, and come in where no route leads back.
_ANY_WAY = {"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.default.rp_filter": "0"}


class FabricNetwork(Namespaces):
    """The network of `fabric`: a context manager as `Dumbbell` is, with the same errors.

    senders: the hosts' namespaces, in the order of the fabric's names. up, down: link -> namespace
    and interface of the end that packets leave upwards, and downwards.
    """

    def __init__(self, run_id: str, fabric: Fabric, sysctls: Mapping[str, str]) -> None:
        links = fabric.links()
        super().__init__(_ANY_WAY | settings_of(links.values(), sysctls))
        self._fabric = fabric
        self._links = links
        self._begin = f"{PREFIX}{run_id}-"
        self.senders = [self.host(name) for name in fabric.host_names()]
        self.receiver = self.senders[-1]
        self.up: dict[str, tuple[str, str]] = {}
        self.down: dict[str, tuple[str, str]] = {}

    def host(self, name: str) -> str:
        """The namespace of a host."""
        return self._begin + name

    def address(self, host: str, spine: int) -> str:
        """The address at which a host is reached over a spine."""
        return f"10.{spine}.{rack_of(host)}.{host.partition('h')[2]}"

    def bottlenecks(self) -> list[tuple[str, Link]]:
        """(namespace, link) of every link, each in both directions."""
        return [
            (ends[name][0], link)
            for name, link in self._links.items()
            for ends in (self.up, self.down)
        ]

    def counters(self) -> LinkCounters:
        """Packets that came to hosts, and what all links dropped and marked on their way."""
        came = drops = marks = 0
        packets = 0
        hosts = self._fabric.host_names()
        for name, link in self._links.items():
            for ends in (self.up, self.down):
                namespace, interface = ends[name]
                with inside(namespace):
                    found = link_counters(interface, link)
                drops += found.drops
                marks += found.marks
                if name in hosts and ends is self.down:
                    came += found.bytes
                    packets += found.packets
        return LinkCounters(bytes=came, packets=packets, drops=drops, marks=marks)

    def read_back(self) -> dict[str, Any]:
        """Return the network as the kernel says it is: `links` with `up` and `down`, and the
        settings.
        """
        description = self.read_back_settings() | {"links": {}}
        for name in self._links:
            description["links"][name] = {}
            for way, ends in (("up", self.up), ("down", self.down)):
                namespace, interface = ends[name]
                with inside(namespace):
                    description["links"][name][way] = read_bottleneck(interface)
        return description

    def build(self) -> None:
        fabric = self._fabric
        leaves = {rack: f"{self._begin}leaf{rack}" for rack in range(1, fabric.racks + 1)}
        spines = {spine: f"{self._begin}spine{spine}" for spine in range(1, fabric.spines + 1)}
        nics = {name: f"{self.host(name)}-nic" for name in fabric.host_names()}
        routers = (*leaves.values(), *spines.values(), *nics.values())
        for namespace in (*routers, *self.senders):
            self.create(namespace)
        for namespace in routers:
            with inside(namespace), IPRoute() as ip:
                write_sysctl("net.ipv4.ip_forward", "1")
                # With no address at all the kernel refuses gateways that are on a link.
                ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
        for name, nic in nics.items():
            rack = rack_of(name)
            host, addresses = self.host(name), [self.address(name, spine) for spine in spines]
            self._pair(host, "to-nic", nic, "to-host", self._links[name].offloads)
            self._connect(name, nic, "to-leaf", leaves[rack], f"to-{name}")
            _address(host, "to-nic", addresses)
            _lead(host, "to-nic", ["0.0.0.0/0"])
            _lead(nic, "to-leaf", ["0.0.0.0/0"])
            for namespace, interface in ((nic, "to-host"), (leaves[rack], f"to-{name}")):
                _lead(namespace, interface, [f"{each}/32" for each in addresses])
        for rack, leaf in leaves.items():
            for spine, namespace in spines.items():
                self._connect(f"r{rack}s{spine}", leaf, f"to-spine{spine}", namespace, f"to-{rack}")
                others = [f"10.{spine}.{each}.0/24" for each in leaves if each != rack]
                _lead(leaf, f"to-spine{spine}", others)
                _lead(namespace, f"to-{rack}", [f"10.{spine}.{rack}.0/24"])

    def _connect(self, name: str, lower: str, up: str, upper: str, down: str) -> None:
        """The link `name`: a veth pair from the lower to the upper end, shaped at both."""
        link = self._links[name]
        self._pair(lower, up, upper, down, link.offloads)
        self.up[name], self.down[name] = (lower, up), (upper, down)
        for namespace, interface in (self.up[name], self.down[name]):
            with inside(namespace):
                add_bottleneck(interface, link)

    def _pair(self, lower: str, up: str, upper: str, down: str, offloads: bool) -> None:
        """A veth pair with the other end as the neighbour of each end."""
        mac, upper_mac = self.pair(lower, up, upper, down, offloads)
        for namespace, interface, peer_mac in ((lower, up, upper_mac), (upper, down, mac)):
            with inside(namespace), IPRoute() as ip:
                index = ip.link_lookup(ifname=interface)[0]
                ip.neigh("add", dst=_NEIGHBOUR, lladdr=peer_mac, ifindex=index, state=NUD_PERMANENT)


def _address(namespace: str, interface: str, addresses: Sequence[str]) -> None:
    with inside(namespace), IPRoute() as ip:
        for each in addresses:
            ip.addr("add", index=ip.link_lookup(ifname=interface)[0], address=each, prefixlen=32)


def _lead(namespace: str, interface: str, destinations: Sequence[str]) -> None:
    """Routes by way of the other end of `interface`."""
    with inside(namespace), IPRoute() as ip:
        index = ip.link_lookup(ifname=interface)[0]
        for each in destinations:
            ip.route("add", dst=each, gateway=_NEIGHBOUR, oif=index, flags=["onlink"])
