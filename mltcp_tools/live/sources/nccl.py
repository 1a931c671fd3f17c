# SPDX-License-Identifier: BSD-2-Clause
"""Iterations and bytes of a training process from the calls of NCCL or RCCL, without its help.

NCCL exports its functions under the same names, with the same arguments, since version 2.0. A probe
on them sees the communicator, the count and the data type of each call, from which follows what the
process sends. A call only puts work in a GPU's queue: when that runs and how long isn't seen. Work
that a CUDA graph replays makes no calls at all; its process is silent here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltcp_tools.live.attach.classify import NCCL_FILE
from mltcp_tools.live.attach.environment import read_environment
from mltcp_tools.live.sources.call_source import CallSource
from mltcp_tools.live.sources.calls import Call
from mltcp_tools.live.sources.probes import Probes

KINDS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "all_to_all",
    "gather",
    "scatter",
    "send",
    "recv",
    "group_start",
    "group_end",
    "communicator",
)
"""Kinds of event, in the order of enum kind in bpf/nccl.bcc.c."""

TYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of an element, in the order of ncclDataType_t (nccl.h of NCCL 2.32; only ever added to)."""

_SYMBOLS = {
    "ncclAllReduce": "all_reduce",
    "ncclReduceScatter": "reduce_scatter",
    "ncclAllGather": "all_gather",
    "ncclBroadcast": "broadcast",  # ncclBcast calls it
    "ncclReduce": "reduce",
    "ncclAlltoAll": "all_to_all",
    "ncclGather": "gather",
    "ncclScatter": "scatter",
    "ncclSend": "send",
    "ncclRecv": "recv",
    "ncclGroupStart": "group_start",
    "ncclGroupEnd": "group_end",
    "ncclCommInitRank": "init_rank",
    "ncclCommInitRankConfig": "init_rank",
    "ncclCommInitRankScalable": "init_rank_scalable",
    "ncclCommInitAll": "init_all",
}

_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
"""The variables in which torchrun, Open MPI, MPICH and Slurm tell the number of ranks."""

_ANY = 0
"""The handle, which is not a communicator's, that stands for those whose creation wasn't seen."""

_COMMUNICATORS = 4096
"""Communicators of a process that are remembered."""

_GROUP_CALLS = 1024
"""Calls after which a group is taken as ended: its end may have been lost."""

_GROUPS = 4096
"""Threads within a group that are remembered; of others each call counts by itself."""


def sent_bytes(kind: str, count: int, datatype: int, ranks: int) -> int:
    """Bytes that a rank sends for a call, in the mean of all ranks of the communicator.

    These are the ring algorithm's; the trees' are the same in the mean, as the same must leave each
    rank (doc/PERFORMANCE.md of nccl-tests, where the factors are the ratio of bus to algorithm
    bandwidth). count: the argument of the call, which for reduce-scatter, all-gather, gather and
    scatter is the share of one rank, and for all-to-all what goes to one peer. Broadcast and reduce
    are chains, whose ranks pass on the whole.
    """
    size = count * (TYPE_BYTES[datatype] if datatype < len(TYPE_BYTES) else 0)
    others = ranks - 1
    match kind:
        case "all_reduce":
            return size * 2 * others // ranks
        case "reduce_scatter" | "all_gather" | "all_to_all":
            return size * others
        case "gather" | "scatter":
            return size * others // ranks
        case "broadcast" | "reduce":
            return size if others else 0
        case "send":
            return size
    return 0


@dataclass(frozen=True)
class Communicator:
    """ranks: how many there are. rank: the own one, None where it isn't known."""

    ranks: int
    rank: int | None


class NcclSource(CallSource):
    """The NCCL calls of the processes that are watched."""

    source = "nccl"
    library = NCCL_FILE
    needs = frozenset({"all_reduce"})

    def __init__(self) -> None:
        self._communicators: dict[int, dict[int, Communicator]] = {}
        self._groups: dict[tuple[int, int], _Group] = {}
        super().__init__(Probes("nccl", self.library, _SYMBOLS))

    def watch(self, pid: int) -> bool:
        found = super().watch(pid)
        if found and pid not in self._communicators:
            world = world_size(pid)
            self._communicators[pid] = {_ANY: Communicator(world, None)} if world else {}
        return found

    def forget(self, pid: int) -> None:
        super().forget(pid)
        self._communicators.pop(pid, None)
        self._groups = {key: group for key, group in self._groups.items() if key[0] != pid}

    def communicator(self, pid: int, handle: int) -> Communicator | None:
        """Return the communicator of a process that is watched, as far as it is known.

        Known where its creation was seen; else it is taken for the one of all ranks, whose number
        stands in the environment of the process. None where it doesn't.
        """
        known = self._communicators.get(pid, {})
        return known.get(handle, known.get(_ANY))

    def _flow_share(self, pid: int, flows: int | None) -> float | None:
        return 1 / flows if flows and self._communicators.get(pid) else None

    def _receive(self, event: Any) -> None:
        kind, thread = KINDS[event.kind], (event.pid, event.thread)
        if event.pid not in self._logs:
            return
        if kind == "communicator":
            self._created(event)
        elif kind == "group_start":
            if len(self._groups) < _GROUPS:
                self._groups.setdefault(thread, _Group()).depth += 1
        elif kind == "group_end":
            group = self._groups.get(thread)
            if group is not None:
                group.depth -= 1
                self._end(thread, group)
        else:
            group = self._groups.get(thread, _Group())
            group.calls.append(self._call(kind, event))
            self._end(thread, group)

    def _created(self, event: Any) -> None:
        known = self._communicators[event.pid]
        if event.count and len(known) < _COMMUNICATORS:
            known[event.communicator] = Communicator(event.count, event.rank)

    def _call(self, kind: str, event: Any) -> Call:
        # Where nobody knows, two ranks: the sequence stays as it is, and its bytes aren't told.
        known = self.communicator(event.pid, event.communicator) or Communicator(2, None)
        to_itself = kind == "send" and event.rank == known.rank
        size = 0 if to_itself else sent_bytes(kind, event.count, event.datatype, known.ranks)
        return Call(event.time_ns / 1e9, event.time_ns / 1e9, (kind, event.communicator), size)

    def _end(self, thread: tuple[int, int], group: _Group) -> None:
        """Log the calls as one, unless the group goes on."""
        if group.depth and len(group.calls) < _GROUP_CALLS:
            return
        self._groups.pop(thread, None)
        if group.calls:
            self._logs[thread[0]].add([group.as_one_call()])


class _Group:
    """The calls of a thread between ncclGroupStart and ncclGroupEnd, which NCCL begins as one."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[Call] = []

    def as_one_call(self) -> Call:
        if len(self.calls) == 1:
            return self.calls[0]
        start_s = self.calls[-1].start_s
        kinds = tuple(call.kind for call in self.calls)
        return Call(start_s, start_s, kinds, sum(call.sent_bytes for call in self.calls))


def world_size(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the number of ranks of a process's job, from the environment it was started with."""
    environment = read_environment(pid, proc)
    if environment is None:
        return None
    for name in _WORLD_SIZE:
        value = environment.get(name) or ""
        if value.isdecimal() and 1 <= int(value) <= 2**31:
            return int(value)
    return None
