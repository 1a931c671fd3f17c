# SPDX-License-Identifier: BSD-2-Clause
"""Iterations and bytes of a training process from the calls of torch's Gloo.

The libtorch_cpu.so of torch's wheels (2.13; the names are the same in Debian's torch 1.13, with a
libgloo.so of its own) exports the functions of ProcessGroupGloo and of Gloo's TCP transport. Those
probed take nothing but numbers and pointers that need not be followed, so no layout of a C++ class
is relied on. A collective is seen from its beginning on a worker thread to its end, with every byte
that it sends to each peer: of all sources but the training loop itself this one knows most.
"""

from __future__ import annotations

import re
from typing import Any

from mltcp_tools.live.sources.call_source import CallSource
from mltcp_tools.live.sources.calls import Call
from mltcp_tools.live.sources.probes import Probes

_WORK = "_ZN4c10d16ProcessGroupGloo9AsyncWork"
_WORK_POINTER = "N3c1013intrusive_ptrIS1_NS2_6detail34intrusive_target_default_null_typeIS1_EEEE"

_SYMBOLS = {
    f"{_WORK}7executeERK{_WORK_POINTER}": "begin",
    f"{_WORK}7executeE{_WORK_POINTER}": "begin",  # torch 1.13
    f"{_WORK}14finishWorkGlooEv": "end",
    f"{_WORK}19finishWorkGlooErrorERKNSt15__exception_ptr13exception_ptrE": "end",
    f"{_WORK}19finishWorkGlooErrorENSt15__exception_ptr13exception_ptrE": "end",  # torch 1.13
    "_ZN4gloo9transport3tcp4Pair4sendEPNS0_13UnboundBufferEmmm": "pair_send",
}


class GlooSource(CallSource):
    """The Gloo collectives of the processes that are watched."""

    source = "gloo"
    library = re.compile(r"libtorch_cpu\.so|libgloo\.so")
    needs = frozenset({"begin", "end", "pair_send"})

    def __init__(self) -> None:
        super().__init__(Probes("gloo", self.library, _SYMBOLS))

    def forget(self, pid: int) -> None:
        super().forget(pid)
        sent = self._probes.bpf[b"sent"]
        for pair, _ in sent.items():
            if pair.pid == pid:
                sent.pop(pair)

    def _flow_share(self, pid: int, flows: int | None) -> float | None:
        """The share of the connection that most is sent through; `flows` isn't needed."""
        each = [sent.value for pair, sent in self._probes.bpf[b"sent"].items() if pair.pid == pid]
        return max(each) / sum(each) if any(each) else None

    def _receive(self, event: Any) -> None:
        log = self._logs.get(event.pid)
        if log is not None:
            kind = "collective" if event.parts else "send"
            log.add([Call(event.start_ns / 1e9, event.end_ns / 1e9, kind, event.bytes)])
