"""What a socket of a training process carries, by what can be seen from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltcp_tools.attach.processes import Process
from mltcp_tools.attach.sockets import Socket

KINDS = ("nccl-data", "nccl-control", "gloo", "store", "other")
"""Kinds of sockets: NCCL's data and control connections, a Gloo pair, torch's store or
rendezvous, and all else."""


@dataclass(frozen=True)
class Verdict:
    """What a socket looks like. reason: one sentence for people.

    carries_data: whether `attach` takes it unless told otherwise.
    """

    socket: Socket
    kind: str
    reason: str
    carries_data: bool


def verdicts(process: Process, sockets: Sequence[Socket]) -> list[Verdict]:
    """A verdict on each of the process's sockets (all of them, as they explain one another)."""
    raise NotImplementedError
