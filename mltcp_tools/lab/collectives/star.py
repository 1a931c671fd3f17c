# SPDX-License-Identifier: BSD-2-Clause
"""Workers around a switch, in network namespaces, each behind a link of its own.

    mltcp-ID-w0 10.1.0.1 to-switch --- w0 [mltcp-ID-wires] s0 --- port0 10.1.0.254 mltcp-ID-switch
    mltcp-ID-w1 10.1.1.1 to-switch --- w1 [              ] s1 --- port1 10.1.1.254
        ...

Upwards a worker's tbf is the link, downwards the tbf of its wire: XDP sends past the queueing
disciplines of the switch's own ports, so the bottleneck lies one namespace further. The wires hand
on whatever comes, by tc; the switch routes between its ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.ethtool import Ethtool
from pyroute2.netlink.rtnl.ndmsg import NUD_PERMANENT

from mltcp_tools.base.errors import HostError
from mltcp_tools.lab.testbed.namespaces import (
    PREFIX,
    inside,
    write_sysctl,
)
from mltcp_tools.lab.testbed.network import Namespaces
from mltcp_tools.lab.testbed.qdiscs import BURST_BYTES, needs

WORKER_INTERFACE = "to-switch"
_INGRESS = 0xFFFF0000


class Star(Namespaces):
    """`rates`: of each worker's link in bit/s, both ways. queue: of each end, bytes. mtu: bytes.

    offloads: leave those of segmentation and receiving on, as fast links need for TCP.
    """

    def __init__(
        self,
        run_id: str,
        rates: Sequence[int],
        queue: int = 100_000,
        mtu: int = 1500,
        offloads: bool = False,
    ) -> None:
        super().__init__({"net.ipv4.tcp_no_metrics_save": "1"})
        self.rates, self.queue, self.mtu = list(rates), queue, mtu
        self._offloads = offloads
        self.switch, self.wires = f"{PREFIX}{run_id}-switch", f"{PREFIX}{run_id}-wires"
        self.workers = [f"{PREFIX}{run_id}-w{number}" for number in range(len(rates))]
        self.ports = [f"port{number}" for number in range(len(rates))]

    def address(self, worker: int) -> str:
        """Of a worker."""
        return f"10.1.{worker}.1"

    def gateway(self, worker: int) -> str:
        """The switch's address on a worker's link."""
        return f"10.1.{worker}.254"

    def build(self) -> None:
        for namespace in (self.switch, self.wires, *self.workers):
            self.create(namespace)
        with inside(self.switch):
            write_sysctl("net.ipv4.ip_forward", "1")
        for number in range(len(self.workers)):
            self._connect(number)

    def _connect(self, number: int) -> None:
        more = (self._offloads, self.mtu)
        ends = (self.workers[number], WORKER_INTERFACE), (self.switch, self.ports[number])
        worker_mac, _ = self.pair(*ends[0], self.wires, f"w{number}", *more)
        switch_mac, _ = self.pair(*ends[1], self.wires, f"s{number}", *more)
        with inside(self.wires), IPRoute() as ip:
            near, far = (ip.link_lookup(ifname=f"{end}{number}")[0] for end in "ws")
            self._shape(ip, near, number)
            _hand_on(ip, near, far)
            _hand_on(ip, far, near)
            _receive_redirected(f"s{number}")
        worker, gateway = self.address(number), self.gateway(number)
        with inside(self.workers[number]), IPRoute() as ip:
            index = ip.link_lookup(ifname=WORKER_INTERFACE)[0]
            ip.addr("add", index=index, address=worker, prefixlen=24)
            ip.neigh("add", dst=gateway, lladdr=switch_mac, ifindex=index, state=NUD_PERMANENT)
            ip.route("add", dst="default", gateway=gateway)
            # A host reaches its own address by it, as rank 0 of a training does.
            ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
            self._shape(ip, index, number)
        with inside(self.switch), IPRoute() as ip:
            index = ip.link_lookup(ifname=self.ports[number])[0]
            ip.addr("add", index=index, address=gateway, prefixlen=24)
            ip.neigh("add", dst=worker, lladdr=worker_mac, ifindex=index, state=NUD_PERMANENT)

    def _shape(self, ip: Any, index: int, number: int) -> None:
        with needs("the qdisc tbf (CONFIG_NET_SCH_TBF)"):
            ip.tc(
                "add",
                "tbf",
                index,
                handle=0x10000,
                rate=self.rates[number] // 8,
                burst=max(BURST_BYTES, self.mtu + 14),
                limit=self.queue,
            )


def _hand_on(ip: Any, source: int, target: int) -> None:
    """Send all that comes in at `source` out at `target`, through its queueing discipline."""
    with needs("tc's ingress, u32 and mirred (CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED)"):
        ip.tc("add", "ingress", source, handle=_INGRESS)
        ip.tc(
            "add-filter",
            "u32",
            source,
            parent=_INGRESS,
            protocol=3,  # ETH_P_ALL
            target=0,
            keys=["0x0/0x0+0"],
            action={
                "kind": "mirred",
                "direction": "egress",
                "action": "redirect",
                "ifindex": target,
            },
        )


def _receive_redirected(interface: str) -> None:
    """Have a veth take frames that XDP sends to its other end: it does so where it has GRO."""
    ethtool = Ethtool()
    try:
        state = ethtool.get_features(interface)
        state.features["rx-gro"].enable = True
        ethtool.set_features(interface, state)
        if not ethtool.get_features(interface).features["rx-gro"].enable:
            raise HostError(f"GRO can't be switched on for {interface}, which XDP needs there.")
    finally:
        ethtool.close()
