"""The network of one arm: namespaces, veth pairs and the bottleneck, through pyroute2.

    mltcp-ID-s1 10.0.1.1 --- 10.0.1.254 \\
    mltcp-ID-s2 10.0.2.1 --- 10.0.2.254  mltcp-ID-router 10.0.0.254 === 10.0.0.1 mltcp-ID-receiver
        ...     to-router       from-s2 /                 bottleneck    bottleneck

`===` is the bottleneck: a tbf of the experiment's rate and queue on the egress of both its ends, so
that each direction has its own. Where the experiment asks for delay, netem holds back what the
router sends to the senders; where it asks for loss, netem loses some of what the senders send;
where it asks for ECN, RED under the tbf marks. Unless it wants offloads, those of segmentation and
receiving are off everywhere, so that the queue holds packets of one MSS and a 64 kB super-packet
never passes a token bucket at once. Neighbours are permanent, so that no ARP is lost
in a full queue; IPv6 is off; metrics aren't kept from one connection to the next.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyroute2 import IPRoute, netns
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl.ndmsg import NUD_PERMANENT

from mltcp_tools.errors import HostError, MltcpError
from mltcp_tools.host import read_sysctl
from mltcp_tools.testbed.experiment import Link
from mltcp_tools.testbed.namespaces import (
    NAMESPACES,
    PREFIX,
    enabled_offloads,
    inside,
    interfaces,
    remove_namespace,
    switch_off_offloads,
    write_sysctl,
)

BURST_BYTES = 20 * 1024  # tc's "20k"
RECEIVER_ADDRESS = "10.0.0.1"
_NO_IPV6 = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv6.conf.default.disable_ipv6": "1",
}
BOTTLENECK = "bottleneck"
_TBF_HANDLE = 0x10000  # 1:
_ROOT = 0xFFFFFFFF  # TC_H_ROOT
_PACKET_BYTES = 1514  # a full one, as qdiscs count it


@dataclass(frozen=True)
class LinkCounters:
    """What a bottleneck qdisc has counted since the network was built."""

    bytes: int
    packets: int
    drops: int
    marks: int


class Namespaces:
    """Namespaces that belong together: a context manager that builds them and takes them down.

    Entering raises HostError where the kernel lacks something and UsageError where a sysctl of the
    experiment isn't one of a namespace; either way nothing is left behind.
    """

    def __init__(self, sysctls: Mapping[str, str]) -> None:
        self.sysctls = _NO_IPV6 | dict(sysctls)
        self.names: list[str] = []

    def __enter__(self) -> Self:
        try:
            self.build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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


class Network(Namespaces):
    """The network for `senders` jobs over one link.

    `run_id` makes the namespaces' names unique.
    """

    def __init__(self, run_id: str, link: Link, sysctls: Mapping[str, str], senders: int) -> None:
        super().__init__(sysctls_of(link, sysctls))
        self.link = link
        self.router = f"{PREFIX}{run_id}-router"
        self.receiver = f"{PREFIX}{run_id}-receiver"
        self.senders = [f"{PREFIX}{run_id}-s{number}" for number in range(1, senders + 1)]

    def counters(self, *, reverse: bool = False) -> LinkCounters:
        """Counters of the bottleneck towards the receiver, or (`reverse`) towards the senders."""
        with inside(self.receiver if reverse else self.router):
            return link_counters(BOTTLENECK, self.link)

    def read_back(self) -> dict[str, Any]:
        """What the kernel says the network is, for the run's records and for tests.

        `bottleneck` and `reverse`: rate in bit/s, queue and burst in bytes; `offloads`: per
        interface those of OFFLOADS that are on; `sysctls`: those that were set, as read in a
        sender's namespace.
        """
        description: dict[str, Any] = {"offloads": {}}
        for name, namespace in (("bottleneck", self.router), ("reverse", self.receiver)):
            with inside(namespace):
                description[name] = read_bottleneck()
        for namespace in (*self.senders, self.router, self.receiver):
            with inside(namespace):
                description["offloads"] |= {
                    f"{namespace}/{interface}": enabled_offloads(interface)
                    for interface in interfaces()
                }
        with inside(self.senders[0]):
            description["sysctls"] = {key: read_sysctl(key) for key in self.sysctls}
        return description

    def build(self) -> None:
        for namespace in (self.router, self.receiver, *self.senders):
            self.create(namespace)
        with inside(self.router):
            write_sysctl("net.ipv4.ip_forward", "1")
        self._connect(self.receiver, BOTTLENECK, BOTTLENECK, 0)
        for number, sender in enumerate(self.senders, 1):
            self._connect(sender, f"from-s{number}", "to-router", number)
        for namespace in (self.router, self.receiver):
            with inside(namespace):
                add_bottleneck(BOTTLENECK, self.link)
        if self.link.delay:
            with inside(self.router):
                for number in range(1, len(self.senders) + 1):
                    add_delay(f"from-s{number}", self.link)
        if self.link.loss:
            for sender in self.senders:
                with inside(sender):
                    add_loss("to-router", self.link)

    def _connect(self, namespace: str, router_end: str, other_end: str, subnet: int) -> None:
        """A veth pair from the router to an endpoint, with addresses, routes and neighbours."""
        router_mac, other_mac = f"02:00:00:00:{subnet:02x}:fe", f"02:00:00:00:{subnet:02x}:01"
        router_ip, other_ip = f"10.0.{subnet}.254", f"10.0.{subnet}.1"
        with open(NAMESPACES / namespace) as target, inside(self.router), IPRoute() as ip:
            peer = {"ifname": other_end, "address": other_mac, "net_ns_fd": target.fileno()}
            with needs("veth pairs (CONFIG_VETH)"):
                ip.link("add", ifname=router_end, kind="veth", address=router_mac, peer=peer)
            self._bring_up(ip, router_end, router_ip, other_ip, other_mac)
        with inside(namespace), IPRoute() as ip:
            self._bring_up(ip, other_end, other_ip, router_ip, router_mac)
            ip.route("add", dst="default", gateway=router_ip)

    def _bring_up(self, ip: Any, interface: str, address: str, peer: str, peer_mac: str) -> None:
        index = ip.link_lookup(ifname=interface)[0]
        if not self.link.offloads:
            switch_off_offloads(interface)
        ip.addr("add", index=index, address=address, prefixlen=24)
        ip.link("set", index=index, state="up")
        ip.neigh("add", dst=peer, lladdr=peer_mac, ifindex=index, state=NUD_PERMANENT)


def sysctls_of(link: Link, sysctls: Mapping[str, str]) -> dict[str, str]:
    """What the ends of `link` are set to: an experiment's `sysctls`, and what the link needs."""
    return settings_of([link], sysctls)


def settings_of(links: Iterable[Link], sysctls: Mapping[str, str]) -> dict[str, str]:
    """What the ends of paths over `links` are set to."""
    settings = {"net.ipv4.tcp_no_metrics_save": "1"}
    ecn = any(link.ecn for link in links)
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


def remove_qdisc(interface: str) -> None:
    """Remove the root qdisc that was added to `interface`; no error where there is none."""
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=interface)[0]
        # The kernel's own has the handle 0, and can't be removed.
        if any(q["parent"] == _ROOT and q["handle"] for q in ip.get_qdiscs(index)):
            ip.tc("del", index=index, parent=_ROOT)


def add_bottleneck(interface: str, link: Link) -> None:
    """Make the egress of `interface` the bottleneck `link`: tbf, and its AQM under it."""
    with IPRoute() as ip, needs("the qdisc tbf (CONFIG_NET_SCH_TBF)"):
        ip.tc(
            "add",
            "tbf",
            ip.link_lookup(ifname=interface)[0],
            handle=_TBF_HANDLE,
            rate=link.rate // 8,
            burst=BURST_BYTES,
            limit=link.queue,
        )
    if link.aqm != "none":
        add_aqm(interface, link)


def add_delay(interface: str, link: Link) -> None:
    """Have netem hold back what leaves `interface` by the delay of `link`."""
    with (
        IPRoute() as ip,
        needs("the qdisc netem (CONFIG_NET_SCH_NETEM), which the link's `delay` is made with"),
    ):
        index = ip.link_lookup(ifname=interface)[0]
        ip.tc("add", "netem", index, delay=round(link.delay * 1e6), limit=100_000)


def add_loss(interface: str, link: Link) -> None:
    """Have netem lose the share of packets that `link` loses among those that leave `interface`."""
    with (
        IPRoute() as ip,
        needs("the qdisc netem (CONFIG_NET_SCH_NETEM), which the link's `loss` is made with"),
    ):
        index = ip.link_lookup(ifname=interface)[0]
        ip.tc("add", "netem", index, loss=link.loss * 100, limit=100_000)


def link_counters(interface: str, link: Link) -> LinkCounters:
    """What the bottleneck on `interface` has counted since it was added."""
    stats = _tbf(interface).get_attr("TCA_STATS2")
    basic, queue = stats.get_attr("TCA_STATS_BASIC"), stats.get_attr("TCA_STATS_QUEUE")
    marks = aqm_marks(interface) if link.ecn else 0
    return LinkCounters(basic["bytes"], basic["packets"], queue["drops"], marks)


def read_bottleneck() -> dict[str, int]:
    """The bottleneck of this namespace as the kernel has it: rate in bit/s, queue and burst in
    bytes."""
    options = _tbf(BOTTLENECK).get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")
    return {
        "rate": options["rate"] * 8,
        "queue": options["limit"],
        "burst": round(options["buffer"] / _psched_ticks_per_second() * options["rate"]),
    }


def _tbf(interface: str) -> Any:
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=interface)[0]
        return next(m for m in ip.get_qdiscs(index) if m["handle"] == _TBF_HANDLE)


def add_aqm(interface: str, link: Link) -> None:
    """The link's queue management under the tbf of `interface`, through tc: pyroute2 has no RED."""
    under = ("qdisc", "add", "dev", interface, "parent", "1:1", "handle", "2:", link.aqm)
    if link.aqm == "red":
        options = _red(link)
    else:
        options = ["limit", str(max(1, link.queue // _PACKET_BYTES))]
    marks = ["ecn"] if link.ecn else ["noecn"] if link.aqm == "fq_codel" else []
    try:
        _tc(*under, *options, *marks)
    except MltcpError as error:
        if "kind is unknown" not in str(error):
            raise
        raise HostError(
            f"This kernel lacks the qdisc {link.aqm} (CONFIG_NET_SCH_{link.aqm.upper()}), which is"
            " the `aqm` of the experiment's `link`."
        ) from None


def _red(link: Link) -> list[str]:
    """RED: it acts from a quarter of the queue on, and on every packet from three quarters on.

    A burst fills the queue within few packets, so the average must follow it as closely as RED's
    can: by half of the difference at each packet. tc chooses that weight where `burst` times
    `avpkt` is just `min`.
    """
    low, high = link.queue // 4, link.queue * 3 // 4
    burst = max(1, round(low / _PACKET_BYTES))
    return [
        *("limit", str(link.queue), "min", str(low), "max", str(high), "burst", str(burst)),
        *("avpkt", str(-(-low // burst)), "probability", "1", "bandwidth", f"{link.rate}bit"),
    ]


def aqm_marks(interface: str) -> int:
    """Packets that the queue management of `interface` has marked."""
    qdiscs = json.loads(_tc("-s", "-j", "qdisc", "show", "dev", interface))
    return sum(int(qdisc.get("marked", 0)) + int(qdisc.get("ecn_mark", 0)) for qdisc in qdiscs)


def _tc(*arguments: str) -> str:
    try:
        done = subprocess.run(["tc", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise HostError("The command tc is missing; install iproute2.") from None
    if done.returncode:
        raise MltcpError(f"`tc {' '.join(arguments)}` failed ({' '.join(done.stderr.split())}).")
    return done.stdout


def _psched_ticks_per_second() -> float:
    # tc's clock: see tc_core_init() of iproute2; all numbers are hexadecimal
    to_us, us_to, resolution, _ = (int(x, 16) for x in Path("/proc/net/psched").read_text().split())
    return 1e6 * to_us / us_to * resolution / 1e6


@contextlib.contextmanager
def needs(what: str) -> Iterator[None]:
    """Say which part of the kernel is missing where a request of netlink fails for that."""
    try:
        yield
    except NetlinkError as error:
        if error.code in (errno.ENOENT, errno.EOPNOTSUPP):
            raise HostError(f"This kernel lacks {what}.") from None
        raise MltcpError(f"Setting up {what} failed ({os.strerror(error.code)}).") from None
