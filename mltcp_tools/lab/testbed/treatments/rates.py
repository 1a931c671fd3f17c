# SPDX-License-Identifier: BSD-2-Clause
"""Rates from feedback as a treatment: bottlenecks say how they are, hosts hear it (mltcp_int)."""

from __future__ import annotations

import contextlib
import struct

from mltcp_tools.kernel.backends.pins import PIN_ROOT
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.clsact import add_egress
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object
from mltcp_tools.kernel.native.rate import pack_params
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.treatments import RatesSettings
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.testbed.namespaces import PREFIX, inside
from mltcp_tools.lab.testbed.qdiscs import BOTTLENECK, burst_bytes
from mltcp_tools.lab.testbed.treatments.base import (
    BuiltNetwork,
    Context,
    TestbedTreatment,
    TreatmentSession,
)

_ELEMENT = struct.Struct("=I")
COUNTS = ("heard", "lost")
"""enum mltcp_feedback_count of bpf/mltcp_feedback.bpf.h."""


class RatesTreatment(TestbedTreatment):
    """Variants of mltcp_int with feedback, from the network or by the hosts' own round trips."""

    def begin(self, variant: Variant) -> RatesSession:
        return RatesSession(variant.settings(RatesSettings), self.context)


class RatesSession(TreatmentSession):
    """The law's parameters on this host; with the network's feedback also the programs for it."""

    def __init__(self, settings: RatesSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._stack = contextlib.ExitStack()
        self._counts = (0, 0)

    def __enter__(self) -> RatesSession:
        _set_params(pack_params(self._settings.fields()))
        self._stack.callback(_set_params, pack_params({}))
        self._counts = _counts()
        return self

    def __exit__(self, *_: object) -> None:
        heard, lost = (now - then for now, then in zip(_counts(), self._counts, strict=True))
        if not heard:
            self.warning = "No feedback arrived, so the flows behaved as their base all the time."
        elif lost:
            self.warning = f"Feedback ceased {lost} times; the flow was its base until the next."
        self._stack.close()

    def network(self, network: BuiltNetwork) -> None:
        if self._settings.source == "host":
            return
        for namespace, link in network.bottlenecks():
            with inside(namespace):
                self._add_hop(BOTTLENECK, _hop_link(link))
        programs = self._stack.enter_context(BpfObject(build_object("feedback"), PIN_ROOT))
        cgroup = self._stack.enter_context(cgroups.joined(f"{PREFIX}{self._context.run_id()}"))
        programs.link_to_cgroup("feedback", cgroup)

    def _add_hop(self, interface: str, link: bytes) -> None:
        """Have a link say how busy it is; link: struct mltcp_hop_link."""
        initial = {".rodata.link": link}
        hop = self._stack.enter_context(BpfObject(build_object("hop"), PIN_ROOT, initial))
        add_egress(interface, hop.program_fd("hop"), "mltcp_hop")


def _hop_link(link: Link) -> bytes:
    """Return the description of the link for the program at the hop: struct mltcp_hop_link."""
    sizes = (1024, link.queue, burst_bytes(link))
    return struct.pack("=QQQ", *(round(size * 8e9 / link.rate) for size in sizes))


def _set_params(value: bytes) -> None:
    with BpfMap.pinned(PIN_ROOT / "mltcp_feedback") as settings:
        settings.set(_ELEMENT.pack(0), value)


def _counts() -> tuple[int, int]:
    """Return the counts of feedback heard, and of times it was found to have ceased, since
    loading.
    """
    with BpfMap.pinned(PIN_ROOT / "mltcp_feedback_counts") as counts:
        found = [counts.get(_ELEMENT.pack(each)) or bytes(8) for each in range(len(COUNTS))]
    heard, lost = (struct.unpack("=Q", each)[0] for each in found)
    return heard, lost
