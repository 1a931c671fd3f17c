# SPDX-License-Identifier: BSD-2-Clause
"""The selection of a job's flows in a capture, and the way they go."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.profiling.frames import Segment

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Place:
    """One end of a job's connections: a network, a port at either end of them, or both."""

    network: Network | None
    port: int | None

    @classmethod
    def parse(cls, text: str) -> Place:
        """From `10.0.0.1`, `10.0.1.0/24`, `fd00::1`, `:5001`, `10.0.0.1:5001`, `[fd00::1]:5001`.

        ValueError for anything else.
        """
        try:
            return cls(ipaddress.ip_network(text, strict=False), None)
        except ValueError:
            host, colon, port = text.rpartition(":")
        if not colon or not 0 < int(port) < 1 << 16:
            raise ValueError(text)
        return cls(
            ipaddress.ip_network(host.strip("[]"), strict=False) if host else None, int(port)
        )

    def has(self, address: Address, port: int, other_port: int) -> bool:
        """Return whether the end `address` and `port` of a connection is meant."""
        if self.network is None:
            # Towards a port, so that whoever connects to a server sends there.
            return other_port == self.port
        return address in self.network and self.port in (None, port, other_port)


@dataclass(frozen=True)
class Selector:
    """The connections of a job named on the command line: one end of each is at these places."""

    job: str
    places: tuple[Place, ...]

    @classmethod
    def parse(cls, text: str) -> Selector:
        """From `NAME=10.0.0.1,10.0.0.2`, `NAME=10.0.1.0/24`, `NAME=:5001`, `NAME=10.0.0.1:5001`."""
        name, equals, places = text.partition("=")
        try:
            found = tuple(Place.parse(place) for place in places.split(","))
        except ValueError:
            found = ()
        if not (name and equals and found):
            raise UsageError(
                f"{text!r} is not a job; write it like NAME=10.0.0.1,10.0.0.2 (hosts at one end of"
                " its connections), NAME=:5001 (a port) or NAME=10.0.0.1:5001 (a port of a host)."
            )
        return cls(name, found)

    def way(self, segment: Segment) -> bool | None:
        """Return whether a segment comes back to the job's places; None where it isn't the job's.

        Between two of the places it goes there from the one named first.
        """
        source, target = ends(segment)
        sends = self._rank(source, segment.source_port, segment.port)
        gets = self._rank(target, segment.port, segment.source_port)
        if sends is None and gets is None:
            return None
        if sends is None or gets is None:
            return sends is None
        return (sends, source.packed) > (gets, target.packed)

    def _rank(self, address: Address, port: int, other_port: int) -> int | None:
        """The number of the first place that has this end of a connection."""
        for number, place in enumerate(self.places):
            if place.has(address, port, other_port):
                return number
        return None


def ends(segment: Segment) -> tuple[Address, Address]:
    """The addresses that a segment goes from and to."""
    half = len(segment.addresses) // 2
    return (
        ipaddress.ip_address(segment.addresses[:half]),
        ipaddress.ip_address(segment.addresses[half:]),
    )
