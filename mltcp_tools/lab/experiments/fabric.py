# SPDX-License-Identifier: BSD-2-Clause
"""A leaf-spine fabric: what it is, its links, and reading it from an experiment's file.

Hosts r1h1, r1h2, … are in racks 1, 2, …; each has a link to its rack's leaf, and each leaf one to
every spine. A packet to another rack goes over one of the spines, always the same for a connection:
equal-cost paths are chosen by a hash of the flow (RFC 2992).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mltcp_tools.base import values
from mltcp_tools.base.document import Section
from mltcp_tools.lab.emulator.patterns import KINDS
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.links import Link, read_one_of_several

MAX_RACKS = 8
MAX_HOSTS = 16
MAX_SPINES = 8


@dataclass(frozen=True)
class Way:
    """A link in one direction: up, from a host to its leaf or from a leaf to a spine, or down."""

    link: str
    up: bool


@dataclass(frozen=True)
class Fabric:
    """`racks` of `hosts` each, and `spines`; the links of hosts (`access`) and leaves (`uplink`).

    A rack can send (hosts * access) / (spines * uplink) times what its uplinks carry.
    """

    racks: int
    hosts: int
    spines: int
    access: Link
    uplink: Link

    def host_names(self) -> list[str]:
        """All hosts, rack by rack."""
        return [
            f"r{rack}h{host}"
            for rack in range(1, self.racks + 1)
            for host in range(1, self.hosts + 1)
        ]

    def links(self) -> dict[str, Link]:
        """All links: those of hosts have the host's name, r1s2 leads from leaf 1 to spine 2."""
        uplinks = {
            f"r{rack}s{spine}": self.uplink
            for rack in range(1, self.racks + 1)
            for spine in range(1, self.spines + 1)
        }
        return dict.fromkeys(self.host_names(), self.access) | uplinks

    def path(self, source: str, destination: str, spine: int) -> list[Way]:
        """From one host to another, over `spine` (from 1) where they are in two racks."""
        racks = [rack_of(source), rack_of(destination)]
        between = []
        if racks[0] != racks[1]:
            between = [Way(f"r{racks[0]}s{spine}", True), Way(f"r{racks[1]}s{spine}", False)]
        return [Way(source, True), *between, Way(destination, False)]

    def spine(self, *key: object) -> int:
        """The spine (from 1) that packets with this key take."""
        digest = hashlib.blake2s(repr(key).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.spines + 1

    def document(self, links: dict[str, Any]) -> dict[str, Any]:
        """As in an experiment's file; `links`: `access` and `uplink` as there."""
        return {"racks": self.racks, "hosts": self.hosts, "spines": self.spines} | links


def rack_of(host: str) -> int:
    """The number of a host's rack, from 1."""
    return int(host[1:].partition("h")[0])


def read_fabric(top: Section) -> Fabric | None:
    """The experiment's `fabric`, if it has one."""
    section = top.section("fabric", ["racks", "hosts", "spines", "access", "uplink"])
    if section is None:
        return None
    for key in ("link", "links"):
        if key in top:
            raise top.error("there is a `fabric`, too; keep one of them.", key)
    return Fabric(
        racks=section.get("racks", values.whole(1, MAX_RACKS)),
        hosts=section.get("hosts", values.whole(1, MAX_HOSTS)),
        spines=section.get("spines", values.whole(1, MAX_SPINES), 2),
        access=read_one_of_several(section, "access"),
        uplink=read_one_of_several(section, "uplink"),
    )


def check_hosts(top: Section, jobs: Iterable[ExperimentJob], fabric: Fabric | None) -> None:
    """Raise UsageError unless each job has a pattern and hosts of the fabric; none without one."""
    for job in jobs:
        where = f"of job {job.name}"
        if fabric is None:
            if job.pattern or job.hosts:
                key = "pattern" if job.pattern else "hosts"
                raise top.error(f"the `{key}` {where} needs a `fabric` at the top.", "jobs")
            continue
        if not job.pattern or not job.hosts:
            key = "hosts" if job.pattern else "pattern"
            raise top.error(
                f"the `{key}` {where} is missing: a fabric's jobs have `hosts` and a `pattern`"
                f" ({', '.join(KINDS)}).",
                "jobs",
            )
        known = fabric.host_names()
        if unknown := [name for name in job.hosts if name not in known]:
            raise top.error(
                f"the `hosts` {where} have {unknown[0]}, and the fabric {known[0]} to {known[-1]}.",
                "jobs",
            )
        if len(set(job.hosts)) < len(job.hosts):
            raise top.error(f"the `hosts` {where} must be different ones.", "jobs")
