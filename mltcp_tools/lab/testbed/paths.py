# SPDX-License-Identifier: BSD-2-Clause
"""The network of an experiment with several bottlenecks, each job crossing some of them.

For two links, and jobs over the first, the second and both:

    s1 --- one-in === one-out --------------------- receiver
    s2 ---------------------------- two-in === two-out ---/
    s3 --- one-in === one-out ----- two-in === two-out ---/

`===` is a bottleneck as in network.py, on the egress of both its ends; a link has one, whichever
jobs cross it. Sender n is 10.1.n.1 and reaches the receiver at 10.2.n.1, an address of its own: so
plain routes to hosts lead each job over its links, and its ACKs back over the same ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl.ndmsg import NUD_PERMANENT

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.runs.recorder import LinkCounters
from mltcp_tools.lab.testbed.namespaces import (
    PREFIX,
    inside,
    write_sysctl,
)
from mltcp_tools.lab.testbed.network import Namespaces, settings_of
from mltcp_tools.lab.testbed.qdiscs import (
    BOTTLENECK,
    add_bottleneck,
    link_counters,
    read_bottleneck,
)

ANY_ADDRESS = "0.0.0.0"


class Paths(Namespaces):
    """The network for senders whose paths are the names of the links they cross, in order.

    A context manager as `Dumbbell` is, with the same errors.
    """

    def __init__(
        self,
        run_id: str,
        links: Mapping[str, Link],
        sysctls: Mapping[str, str],
        paths: Sequence[Sequence[str]],
    ) -> None:
        super().__init__(settings_of(links.values(), sysctls))
        self.links = dict(links)
        self.receiver = f"{PREFIX}{run_id}-receiver"
        self.senders = [f"{PREFIX}{run_id}-s{number}" for number in range(1, len(paths) + 1)]
        self.addresses = [f"10.2.{number}.1" for number in range(1, len(paths) + 1)]
        self._paths = [list(path) for path in paths]
        self._ends = {
            name: (f"{PREFIX}{run_id}-{name}-in", f"{PREFIX}{run_id}-{name}-out") for name in links
        }
        # (namespace, its neighbour) -> the interface there that leads to it, and that one's MAC
        self._ways: dict[tuple[str, str], tuple[str, str]] = {}

    def bottlenecks(self) -> list[tuple[str, Link]]:
        """(namespace, link) of every bottleneck, each in both directions."""
        return [(end, self.links[name]) for name, ends in self._ends.items() for end in ends]

    def counters(self) -> LinkCounters:
        """Sums over the bottlenecks towards the receiver."""
        found = LinkCounters()
        for name, link in self.links.items():
            with inside(self._ends[name][0]):
                found += link_counters(BOTTLENECK, link)
        return found

    def read_back(self) -> dict[str, Any]:
        """Return the network as the kernel has it: `links` as of `Dumbbell`, and the settings."""
        description = self.read_back_settings() | {"links": {}}
        for name, ends in self._ends.items():
            description["links"][name] = {}
            for key, namespace in zip(("bottleneck", "reverse"), ends, strict=True):
                with inside(namespace):
                    description["links"][name][key] = read_bottleneck()
        return description

    def build(self) -> None:
        routers = [end for ends in self._ends.values() for end in ends]
        for namespace in (self.receiver, *routers, *self.senders):
            self.create(namespace)
        for namespace in routers:
            with inside(namespace):
                write_sysctl("net.ipv4.ip_forward", "1")
        for name, ends in self._ends.items():
            self._connect(*ends, BOTTLENECK, BOTTLENECK)
            for namespace in ends:
                with inside(namespace):
                    add_bottleneck(BOTTLENECK, self.links[name])
        for number, path in enumerate(self._paths, 1):
            hops = [self.senders[number - 1], *(end for name in path for end in self._ends[name])]
            hops.append(self.receiver)
            for here, there in itertools.pairwise(hops):
                if (here, there) not in self._ways:
                    self._connect(here, there, f"to-{_short(there)}", f"to-{_short(here)}")
            self._lead(hops, f"10.1.{number}.1", self.addresses[number - 1])

    def _connect(self, here: str, there: str, here_name: str, there_name: str) -> None:
        """A veth pair between two namespaces, up, without addresses."""
        offloads = any(link.offloads for link in self.links.values())
        macs = self.pair(here, here_name, there, there_name, offloads)
        self._ways[here, there] = (here_name, macs[1])
        self._ways[there, here] = (there_name, macs[0])

    def _lead(self, hops: Sequence[str], source: str, destination: str) -> None:
        """Addresses at both ends of the hops, and routes between them in both directions."""
        for namespace, interface, address in (
            (hops[0], self._ways[hops[0], hops[1]][0], source),
            (hops[-1], "lo", destination),
        ):
            with inside(namespace), IPRoute() as ip:
                index = ip.link_lookup(ifname=interface)[0]
                ip.link("set", index=index, state="up")
                ip.addr("add", index=index, address=address, prefixlen=32)
        for way, address in ((list(hops), destination), (list(reversed(hops)), source)):
            for here, there in itertools.pairwise(way):
                interface, mac = self._ways[here, there]
                with inside(here), IPRoute() as ip:
                    index = ip.link_lookup(ifname=interface)[0]
                    ip.route("add", dst=f"{address}/32", oif=index, scope="link")
                    ip.neigh("add", dst=address, lladdr=mac, ifindex=index, state=NUD_PERMANENT)


def _short(namespace: str) -> str:
    """The end of a namespace's name, which an interface's has room for."""
    return namespace.removeprefix(PREFIX).partition("-")[2]
