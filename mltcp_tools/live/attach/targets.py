# SPDX-License-Identifier: BSD-2-Clause
"""From what a user names to the processes, their sockets, and which of these to attach."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.classify import Classified, classify, gather, wanted
from mltcp_tools.live.attach.processes import Process, processes
from mltcp_tools.live.attach.selection import Target, select
from mltcp_tools.live.attach.sockets import Socket, sockets_of
from mltcp_tools.live.attach.state import StateFiles

_FEW = 5
"""Processes named in a note."""


@dataclass(frozen=True)
class Seen:
    """A process and what its sockets look like."""

    process: Process
    sockets: tuple[Classified, ...]


def look(target: Target) -> tuple[list[Seen], list[str]]:
    """The processes that are meant, and why some of them could not be read.

    MltcpError when there is no such process.
    """
    found = select(target)
    if not found:
        limit = "" if privileges.may_trace() else " as far as this user may see (not root)"
        raise MltcpError(
            f"No process matches {target}{limit}; `mltcp connections` shows training processes."
        )
    return _look(found)


def look_for_training(attached: Collection[int]) -> tuple[list[Seen], list[str]]:
    """As `look`, for all processes with a training library or a socket of one of the cookies."""
    candidates, unread = [], []
    for each in processes():
        evidence = gather(each)
        if evidence is None and each.is_running():
            unread.append(each)
        elif evidence:
            candidates.append((each, bool(evidence.libraries)))
    found, notes = _look([each for each, _ in candidates])
    trains = {each for each, has_library in candidates if has_library}
    if unread:
        names = ", ".join(f"{each.pid} ({each.name})" for each in unread[:_FEW])
        more = f" and {len(unread) - _FEW} more" if len(unread) > _FEW else ""
        notes.append(f"Not inspected: {names}{more}: {privileges.reason_for_refusal()}.")
    return [
        each
        for each in found
        if each.process in trains
        or any(classified.socket.cookie in attached for classified in each.sockets)
    ], notes


def _look(found: list[Process]) -> tuple[list[Seen], list[str]]:
    sockets, unread = sockets_of(found)
    blind = {process.pid for process, _ in unread}
    seen = [
        Seen(
            process,
            tuple(classify(process, [each for each in sockets if each.process == process])),
        )
        for process in found
        if process.pid not in blind
    ]
    return seen, [reason for _, reason in unread]


def sockets_to_attach(
    target: Target, kinds: Collection[str], stays_here: bool = False
) -> tuple[list[Socket], list[Classified]]:
    """Return which sockets of the processes that are meant to attach, and the connections left
    alone.

    kinds, stays_here: as for classify.wanted. Raises HostError, before anything is looked at, where
    this process could not attach; and where it may not look into one that is meant. MltcpError when
    nothing is to be attached.
    """
    privileges.require_capabilities()
    seen, unread = look(target)
    if unread:
        raise HostError(f"Nothing was changed: {unread[0]}")
    found = [classified for each in seen for classified in each.sockets]
    chosen = wanted(found, kinds, stays_here)
    if not chosen:
        raise MltcpError(
            f"Nothing to attach: none of the matching TCP sockets ({len(found)}, processes:"
            f" {len(seen)}) looks like it carries a job's data to another host; `mltcp"
            " connections` says why; --kind selects other kinds, and --kind all takes all."
        )
    taken = {each.cookie for each in chosen}
    return chosen, [
        each for each in found if each.socket.cookie not in taken and each.socket.state != "listen"
    ]


def attached_jobs(files: StateFiles | None = None) -> tuple[dict[int, str], list[str]]:
    """The job of each attached socket by its cookie; and why it may not be known."""
    try:
        states = (files or StateFiles()).read()
    except PermissionError:
        return {}, ["Only root is shown which sockets are attached."]
    except HostError as error:
        return {}, [str(error)]
    return {record.cookie: state.job.name for state in states for record in state.sockets}, []
