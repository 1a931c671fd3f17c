# SPDX-License-Identifier: BSD-2-Clause
"""The bottlenecks of an experiment: what they are, and reading them from its file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from mltcp_tools.base import values
from mltcp_tools.base.document import Section
from mltcp_tools.base.units import parse_bytes, parse_fraction, parse_rate, parse_seconds
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.neighbours import Neighbour

# Part of a namespace's and an interface's name, of which the latter has 15 characters.
_LINK = re.compile(r"[a-z0-9]{1,6}")

MAX_RATE_BPS = 1_000_000_000_000
"""Of a link, bits per second; faster ones than the testbed's are simulated."""

Aqm = Literal["none", "red", "threshold"]
AQMS: tuple[Aqm, ...] = get_args(Aqm)
"""Active queue management of a link: RED, or a threshold, from which on a BPF program marks."""

Qdisc = Literal["none", "fq", "fq_codel"]
QDISCS: tuple[Qdisc, ...] = get_args(Qdisc)
"""The qdisc of the hosts that send, by the kernel's name; with none their packets go at once."""

MTU = 1500
"""Of Ethernet, bytes of IP."""


@dataclass(frozen=True)
class Link:
    """The bottleneck: rate in bit/s, queue in bytes, delay added to the round trip in seconds.

    aqm: what marks packets, and has the ends ask for that (ECN): "red", or "threshold", a quarter
    of the queue; with "none", the queue drops what finds it full. loss: share of the senders'
    packets that are lost at random before they come to the queue. offloads: segmentation and
    receive offloads stay on, so that the queue holds packets larger than those of a real wire. mtu:
    of all interfaces, bytes. qdisc: of the senders' hosts.
    """

    rate: int = 200_000_000
    queue: int = 30_000
    delay: float = 0.0
    aqm: Aqm = "none"
    loss: float = 0.0
    offloads: bool = False
    mtu: int = MTU
    qdisc: Qdisc = "none"

    @property
    def marks(self) -> bool:
        """Return whether its queue marks packets."""
        return self.aqm != "none"


_FIELDS = [field.name for field in dataclasses.fields(Link)]


def read_links(top: Section) -> tuple[Link, dict[str, Link]]:
    """The one bottleneck, or the slowest of several, and these by name."""
    if "links" not in top:
        return _read_link(top.section("link", _FIELDS)), {}
    if "link" in top:
        raise top.error("there are `links`, too; keep one of them.", "link")
    section = top.section("links", None)
    assert section is not None
    links = {}
    for name in section:
        if not _LINK.fullmatch(name):
            raise section.error("a link's name has lower-case letters and digits, 6 at most.", name)
        links[name] = read_one_of_several(section, name)
    if not links:
        raise top.error("must name at least one link.", "links")
    return min(links.values(), key=lambda link: link.rate), links


def check_paths(
    top: Section, travellers: Iterable[ExperimentJob | Neighbour], links: Mapping[str, Link]
) -> None:
    """Raise UsageError unless each crosses links that there are, each once; none with one link."""
    for each in travellers:
        where = f"of {each.name}"
        if each.links and not links:
            raise top.error(f"the `links` {where} need `links` by name at the top.")
        if links and not each.links:
            raise top.error(f"the `links` {where} are missing; name those it crosses.", "links")
        unknown = [name for name in each.links if name not in links]
        if unknown or len(set(each.links)) < len(each.links):
            raise top.error(
                f"the `links` {where} must be some of {', '.join(links)}, each once.", "links"
            )


def read_one_of_several(section: Section, name: str) -> Link:
    """The link under `name`, which adds no delay and loses nothing at random."""
    link = _read_link(section.section(name, _FIELDS))
    if link.delay or link.loss:
        raise section.error("one of several links has neither `delay` nor `loss`.", name)
    if link.mtu != MTU or link.qdisc != "none":
        raise section.error("one of several links has neither `mtu` nor `qdisc`.", name)
    return link


def _read_link(section: Section | None) -> Link:
    if section is None:
        return Link()
    default_aqm: Aqm = Link.aqm
    default_qdisc: Qdisc = Link.qdisc
    link = Link(
        rate=section.get(
            "rate", values.within(parse_rate, 1_000_000, MAX_RATE_BPS, "bit/s"), Link.rate
        ),
        # less than two packets of 1514 bytes is not a queue
        queue=section.get("queue", values.within(parse_bytes, 3_028, 1 << 30, "bytes"), Link.queue),
        delay=section.get("delay", values.within(parse_seconds, 0.0, 10.0, "seconds"), Link.delay),
        aqm=section.get("aqm", values.choice(AQMS), default_aqm),
        loss=section.get("loss", values.within(parse_fraction, 0.0, 0.5, "(0% to 50%)"), Link.loss),
        offloads=section.get("offloads", values.yes_no, Link.offloads),
        # 576: what every host takes (RFC 791); 9 kB and more: jumbo frames
        mtu=section.get("mtu", values.within(parse_bytes, 576, 16_000, "bytes"), Link.mtu),
        qdisc=section.get("qdisc", values.choice(QDISCS), default_qdisc),
    )
    if link.queue < 2 * (link.mtu + 14):
        raise section.error("must hold two packets of the link's `mtu`.", "queue")
    if link.qdisc != "none" and link.loss:
        raise section.error(
            "the hosts' `qdisc` is where `loss` is made; keep one of them.", "qdisc"
        )
    return link
