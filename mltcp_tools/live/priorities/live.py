# SPDX-License-Identifier: BSD-2-Clause
"""Priorities of jobs that run already: their sockets are known, their bursts are heard in packets.

The programs count what the sockets of jobs send through some interfaces and mark it; a controller
of its own orders the bursts (controller.py). Queues along the way must serve the marks: a switch
that maps the DSCPs of bpf/priority.bpf.h to its priorities, or HTB as the testbed has it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.backends.base import Flow, Job
from mltcp_tools.kernel.host.clsact import add_egress, remove_egress
from mltcp_tools.kernel.host.programs import module_command, wait_or_kill
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object
from mltcp_tools.live.priorities.coflows import LEVELS
from mltcp_tools.live.priorities.maps import KnownJob, Maps
from mltcp_tools.live.trial.rollback import jobs_on_trial

FOLDER = Path("/sys/fs/bpf/mltcp-priorities")
_PRIORITY = 4711
"""Of our filter among those of an interface; it is found again by this."""

_END_S = 5.0
_GAP_S = 0.01
"""The pause that ends a burst where neither the job nor its flows know one yet."""


@dataclass(frozen=True)
class Prioritised:
    """The settings of an agent's priorities. interfaces: by which jobs send. weight: one of
    priorities.coflows.WEIGHTS. levels: how many the switches have. elsewhere: the controller is
    not this host's own (`mltcp lab priorities --host`)."""

    interfaces: tuple[str, ...]
    weight: str = "none"
    levels: int = LEVELS
    elsewhere: bool = False


@contextlib.contextmanager
def controller(
    folder: Path, weight: str, levels: int, stderr: IO[bytes] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The controller of the maps pinned in `folder`, a process of its own, so that it works while
    the one that starts it does something else. It ends when the context is left, and with the
    process that starts it, however that ends."""
    process = subprocess.Popen(
        module_command("mltcp_tools.live.priorities", str(folder), weight, str(levels)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,  # signals of the terminal are for the one that starts it
    )
    try:
        yield process
    finally:
        process.terminate()
        wait_or_kill(process, _END_S)


class LivePriorities:
    """Programs, maps and the controller; a context manager that takes all of it away again.

    What an earlier one left that was killed is replaced. Call `follow` with the flows that there
    are; those of jobs send with their job's level from then on, until they aren't among them.
    """

    def __init__(self, settings: Prioritised, folder: Path = FOLDER) -> None:
        self._settings = settings
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._known: dict[int, tuple[str, KnownJob]] = {}
        """The jobs in the maps, by id: their names, and what is known of them."""
        self._sockets: dict[int, int] = {}
        """The ids of the jobs of the sockets in the maps, by cookie."""

    def __enter__(self) -> LivePriorities:
        with contextlib.ExitStack() as stack:
            if self._folder.exists():
                shutil.rmtree(self._folder)
            try:
                self._folder.mkdir(mode=0o700)
            except OSError as error:
                raise HostError(
                    f"{self._folder} can't be made ({error.strerror}); mount the BPF file system:"
                    " mount -t bpf bpf /sys/fs/bpf"
                ) from None
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            programs = stack.enter_context(BpfObject(build_object("priority"), self._folder))
            self._maps = stack.enter_context(Maps(self._folder))
            for interface in self._settings.interfaces:
                remove_egress(interface, _PRIORITY)
                add_egress(interface, programs.program_fd("mark"), "mltcp_mark", _PRIORITY)
                stack.callback(remove_egress, interface, _PRIORITY)
            if not self._settings.elsewhere:
                self.controller = stack.enter_context(
                    controller(self._folder, self._settings.weight, self._settings.levels)
                )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def alive(self) -> bool:
        """Return whether the controller runs, if it is ours; when it doesn't all jobs are alike."""
        return self._settings.elsewhere or self.controller.poll() is None

    def follow(self, jobs: Sequence[Job], flows: Sequence[Flow]) -> None:
        """Have the flows send with the levels of their jobs, and the controller know the jobs."""
        own: defaultdict[int, list[Flow]] = defaultdict(list)
        for flow in flows:
            own[flow.job_id].append(flow)
        names = {job.id: job.name for job in jobs}
        self._forget(names, own)
        for job in jobs:
            if not own[job.id]:
                continue
            known = job.name, known_job(job, own[job.id])
            new = [each.cookie for each in own[job.id] if self._sockets.get(each.cookie) != job.id]
            if new or self._known.get(job.id) != known:
                self._maps.set_job(job.id, known[1], new)
                self._known[job.id] = known
                self._sockets.update(dict.fromkeys(new, job.id))

    def _forget(self, names: Mapping[int, str], own: Mapping[int, Sequence[Flow]]) -> None:
        """Take out of the maps what has left, as they would fill up, and jobs whose ids are others'
        now.

        names: of the jobs that there are, by id. own: the flows of each id.
        """
        present = {flow.cookie for job in names for flow in own.get(job, ())}
        sockets = [cookie for cookie in self._sockets if cookie not in present]
        jobs = [job for job, (name, _) in self._known.items() if names.get(job) != name]
        if not sockets and not jobs:
            return
        # A trial's turns without mltcp, in which its jobs aren't there, have the same priorities.
        on_trial = jobs_on_trial()
        kept = {
            job
            for job, (name, _) in self._known.items()
            if name in on_trial and names.get(job, name) == name
        }
        for cookie in sockets:
            if self._sockets[cookie] not in kept:
                self._maps.forget_socket(cookie)
                del self._sockets[cookie]
        for job in jobs:
            if job in kept:
                continue
            if job in names and own.get(job):
                # The controller sees no change, so it wouldn't give the level anew.
                self._maps.forget_bursts(job)
            else:
                self._maps.forget_job(job)
            del self._known[job]


def known_job(job: Job, flows: Sequence[Flow]) -> KnownJob:
    """Return the description of a job for the controller: the bytes of a burst over its flows here,
    0 where some of them aren't known yet, and half of the gap that ends one.
    """
    each = [job.params.burst_bytes or flow.learned_bytes for flow in flows]
    gaps = [job.params.gap_s or flow.learned_gap_s / 2 for flow in flows]
    gap_s = min((gap for gap in gaps if gap > 0), default=_GAP_S)
    return KnownJob(sum(each) if all(each) else 0, max(1, round(gap_s * 1e9)))
