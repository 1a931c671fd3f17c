# SPDX-License-Identifier: BSD-2-Clause
"""The aggregator in the kernel: its BPF programs on their ports, and what is in their maps."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.collectives.library import constant, library, secret_of
from mltcp_tools.collectives.session import PORT
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object

COUNTERS = (
    "taken",
    "results",
    "replies",
    "stale",
    "foreign",
    "wrong_key",
    "wrong_sender",
    "malformed",
    "corrupt",
    "refused",
    "bytes",
)
"""enum counter of bpf/aggregate.bpf.h."""

_PROGRAMS = ("aggregate_xdp", "address_copy", "aggregate_tc")
_MAPS = (
    "agg_addresses",
    "agg_jobs",
    "agg_workers",
    "agg_slots",
    "agg_counters",
    "agg_ports",
    "agg_behind",
)
XDP_VALUES = 848
"""Most values of a packet that XDP can send to several ports: the kernel copies one page at most,
with 256 bytes of headroom and 320 behind the frame."""

_DEVMAP_HASH = 25  # enum bpf_map_type
_CLSACT, _INGRESS = 0xFFFF0000, 0xFFFFFFF2
_FILTER = "mltcp-aggregate"
_LOCK_BYTES = 8  # struct agg_slot: what comes before the entry


@dataclass(frozen=True)
class Peer:
    """A worker as seen from here: addresses, UDP ports, MACs, and the interface's index."""

    address: str
    port: int
    local_address: str
    local_port: int
    mac: bytes
    local_mac: bytes
    interface: int


@dataclass(frozen=True)
class KernelJob:
    """A job as its programs have it (struct agg_job); peers in the order of ranks here."""

    index: int
    key: int
    secret: bytes
    generation: int
    first: int
    slots: int
    values: int
    peers: Sequence[Peer]


def _be32(address: str) -> int:
    return int.from_bytes(ipaddress.IPv4Address(address).packed, "little")


def _be16(port: int) -> int:
    return int.from_bytes(port.to_bytes(2, "big"), "little")


def _peer_fields(peer: Peer) -> dict[str, Any]:
    return {
        "address": _be32(peer.address),
        "local_address": _be32(peer.local_address),
        "port": _be16(peer.port),
        "local_port": _be16(peer.local_port),
        "mac": peer.mac,
        "local_mac": peer.local_mac,
        "interface": peer.interface,
    }


def _struct(name: str, fields: dict[str, Any]) -> bytes:
    _, own = library()
    return bytes(own.buffer(own.new(f"struct {name} *", fields)))


def _u32(number: int) -> bytes:
    return struct.pack("=I", number)


class Programs:
    """The programs, on `interfaces` until closed. slots: of all jobs together.

    mode: `xdp` and `tc` attach those programs; `auto` attaches XDP to ports that aren't veths, as
    the other end of a veth takes frames from XDP only where GRO is on there. XDP costs less per
    packet, needs a port for each worker, and sends past the queueing disciplines; other jobs go
    through tc.
    """

    def __init__(self, interfaces: Sequence[str], mode: str, slots: int, port: int = PORT) -> None:
        self.interfaces, self.slots, self.port = list(interfaces), slots, port
        self._mode = mode
        self._with_xdp: set[int] = set()
        self._filtered: list[int] = []
        self._before: dict[int, dict[str, int]] = {}  # counters of an index, of former jobs
        self._object = BpfObject(
            build_object("aggregate"),
            None,
            {".rodata": struct.pack("=H", port)},
            {"agg_slots": 2 * slots},
        )
        try:
            self._maps = {name: self._object.map(name) for name in _MAPS}
            with IPRoute() as ip:
                for each in ip.get_addr(family=socket.AF_INET):
                    self._take_to(each.get_attr("IFA_LOCAL") or each.get_attr("IFA_ADDRESS"))
                for interface in interfaces:
                    self._attach(ip, interface)
        except BaseException:
            self.close()
            raise

    def _attach(self, ip: Any, interface: str) -> None:
        found = ip.link_lookup(ifname=interface)
        if not found:
            raise UsageError(f"There is no interface {interface} here; `ip link` lists them.")
        if self._mode == "xdp" or (self._mode == "auto" and not _is_veth(ip, found[0])):
            self._object.attach_xdp("aggregate_xdp", found[0])
            self._with_xdp.add(found[0])
        remove_filter(ip, found[0])
        with contextlib.suppress(NetlinkError):  # it may have one, which stays
            ip.tc("add", "clsact", found[0])
        ip.tc(
            "add-filter",
            "bpf",
            found[0],
            parent=_INGRESS,
            prio=1,
            classid=1,
            fd=self._object.program_fd("aggregate_tc"),
            name=_FILTER,
            direct_action=True,
        )
        self._filtered.append(found[0])

    def _take_to(self, address: str) -> None:
        """Have the programs take what is sent to an address of this host; the rest passes."""
        self._maps["agg_addresses"].set(_u32(_be32(address)), b"\1")

    def add(self, job: KernelJob) -> None:
        """Have the programs take a job's packets from now on."""
        self._before[job.index] = self._counters(job.index)
        for peer in job.peers:
            self._take_to(peer.local_address)
        empty = [
            bytes(_LOCK_BYTES) + _struct("agg_entry", {"round": (v - 2) & 0xFFFFFFFF, "final": 1})
            for v in (0, 1)
        ]
        for slot in range(job.first, job.first + job.slots):
            for version in (0, 1):
                self._maps["agg_slots"].set(_u32(2 * slot + version), empty[version])
        places = [job.index * constant("AGG_WORKERS_MAX") + rank for rank in range(len(job.peers))]
        for place, peer in zip(places, job.peers, strict=True):
            self._maps["agg_workers"].set(_u32(place), _struct("agg_peer", _peer_fields(peer)))
        by_tc = self.goes_through_tc(job.peers)
        if not by_tc:
            self._set_ports(job, places)
        fields = {
            "secret": secret_of(job.secret),
            "key": job.key,
            "everyone": (1 << len(job.peers)) - 1,
            "generation": job.generation,
            "first": job.first,
            "slots": job.slots,
            "values": job.values,
            "workers": len(job.peers),
            "by_tc": by_tc,
        }
        self._maps["agg_jobs"].set(_u32(job.index), _struct("agg_job", fields))

    def goes_through_tc(self, peers: Sequence[Peer]) -> bool:
        """Tell whether the classifier serves a job: not each worker has a port with XDP alone."""
        ports = {peer.interface for peer in peers}
        return len(ports) < len(peers) or not ports <= self._with_xdp

    def needs_cutting(self, peers: Sequence[Peer]) -> bool:
        """Tell whether senders must cut messages into packets: a port with XDP takes no others."""
        return any(peer.interface in self._with_xdp for peer in peers)

    def _set_ports(self, job: KernelJob, places: Sequence[int]) -> None:
        with BpfMap.create(_DEVMAP_HASH, "ports", 4, 8, constant("AGG_WORKERS_MAX")) as ports:
            for rank, (place, peer) in enumerate(zip(places, job.peers, strict=True)):
                program = self._object.program_fd("address_copy")
                ports.set(_u32(rank), struct.pack("=II", peer.interface, program))
                self._maps["agg_behind"].set(
                    struct.pack("=II", peer.interface, job.index), _u32(place)
                )
            self._maps["agg_ports"].set(_u32(job.index), _u32(ports.fd))

    def remove(self, job: KernelJob) -> None:
        """Refuse a job's packets from now on."""
        none = _struct("agg_job", {})
        self._maps["agg_jobs"].set(_u32(job.index), none)
        if not self.goes_through_tc(job.peers):
            for peer in job.peers:
                self._maps["agg_behind"].delete(struct.pack("=II", peer.interface, job.index))
            self._maps["agg_ports"].delete(_u32(job.index))

    def busy_s(self) -> float:
        """Seconds that the programs have run, of all CPUs; 0 where the kernel counts none."""
        fds = [self._object.program_fd(name) for name in _PROGRAMS]
        return sum(_run_ns(fd) for fd in fds) / 1e9

    def added_bytes(self) -> int:
        """Of values that were taken from all jobs, since the programs were loaded."""
        return sum(self._counters(index)["bytes"] for index in range(constant("AGG_JOBS_MAX")))

    def foreign(self) -> int:
        """Packets that belong to no job, which the kernel counts at the first index."""
        return self._counters(0)["foreign"]

    def counters(self, index: int | None) -> dict[str, int]:
        """COUNTERS of a job's packets since it was admitted; packets, but `bytes`.

        index: None of a job that isn't admitted yet.
        """
        if index is None:
            return dict.fromkeys(COUNTERS, 0)
        before = self._before.get(index, {})
        return {name: now - before.get(name, 0) for name, now in self._counters(index).items()}

    def _counters(self, index: int) -> dict[str, int]:
        """The same since the programs were loaded, of all jobs at the index."""
        counters = self._maps["agg_counters"]
        return {
            name: sum(counters.get_per_cpu(_u32(index * len(COUNTERS) + which)))
            for which, name in enumerate(COUNTERS)
        }

    def close(self) -> None:
        """Take the programs off. Closing twice is fine."""
        if self._filtered:
            with IPRoute() as ip:
                while self._filtered:
                    remove_filter(ip, self._filtered.pop())
        for found in getattr(self, "_maps", {}).values():
            found.close()
        self._object.close()


def remove_filter(ip: Any, interface: int) -> None:
    """Take off the classifier that a killed aggregator left at an interface, if any."""
    try:
        filters = list(ip.get_filters(interface, parent=_INGRESS))
    except NetlinkError:
        return
    for each in filters:
        options = each.get_attr("TCA_OPTIONS")
        if options and options.get_attr("TCA_BPF_NAME") == _FILTER:
            prio = each["info"] >> 16
            ip.tc("del-filter", "bpf", interface, parent=_INGRESS, prio=prio)
            return


def _is_veth(ip: Any, interface: int) -> bool:
    info = ip.get_links(interface)[0].get_attr("IFLA_LINKINFO")
    return info is not None and info.get_attr("IFLA_INFO_KIND") == "veth"


@contextlib.contextmanager
def _netlink_sentence(address: str) -> Any:
    try:
        yield
    except NetlinkError as error:
        raise HostError(f"There is no route to {address} ({os.strerror(error.code)}).") from None


def find_peer(address: str, port: int, local_address: str, local_port: int) -> Peer:
    """A worker that talks to us already, so that routes and neighbours know it."""
    with IPRoute() as ip, _netlink_sentence(address):
        route = ip.route("get", dst=address)[0]
        interface = route.get_attr("RTA_OIF")
        hop = route.get_attr("RTA_GATEWAY") or address
        neighbours = ip.get_neighbours(family=2, ifindex=interface, dst=hop)
        macs = [each.get_attr("NDA_LLADDR") for each in neighbours]
        own = ip.get_links(interface)[0].get_attr("IFLA_ADDRESS")
    if not macs or not macs[0]:
        raise HostError(
            f"The worker at {address} has no Ethernet address here; an aggregator serves workers"
            " on its own network, not on the same host."
        )
    mac, local_mac = (bytes.fromhex(text.replace(":", "")) for text in (macs[0], own))
    return Peer(address, port, local_address, local_port, mac, local_mac, interface)


def _run_ns(fd: int) -> int:
    """Of a program, where the kernel counts it (bpf_enable_stats)."""
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields.get("run_time_ns", 0))
