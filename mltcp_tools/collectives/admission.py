"""Which jobs an aggregator serves: ranks, slots and keys. Knows of no socket and no kernel."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from mltcp_tools.errors import MltcpError

LINE_BYTES = 4096
"""The longest message of the admission's protocol: a JSON object in a line."""

_NAME_CHARACTERS = 128
_GENERATIONS = 2**32


class Refused(MltcpError):
    """A request that isn't granted, with the sentence that the worker is told."""


@dataclass(frozen=True)
class Request:
    """A rank that wants to join a job.

    workers: of the job at this aggregator. udp_port: of its packets. values: most that fit into a
    packet of its path. slots: how many it would like. token: the aggregator's, where it asks for
    one.
    """

    job: str
    workers: int
    rank: int
    udp_port: int
    values: int
    slots: int
    token: str = ""
    racks: int = 1
    rack: int = 0

    @classmethod
    def parse(cls, line: bytes, max_workers: int, max_values: int) -> Request:
        """From a line that anybody may have sent; Refused where it isn't one."""
        try:
            fields = json.loads(line)
            request = cls(**fields["join"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise Refused("That is not a request to join a job.") from None
        for name, low, high in (
            ("workers", 1, max_workers),
            ("rank", 0, request.workers - 1 if type(request.workers) is int else 0),
            ("udp_port", 1, 65535),
            ("values", 4, 2**16),
            ("slots", 1, 2**16),
            ("racks", 1, max_workers),
            ("rack", 0, request.racks - 1 if type(request.racks) is int else 0),
        ):
            value = getattr(request, name)
            if type(value) is not int or not low <= value <= high:
                raise Refused(f"The request's {name} is {value!r:.40}, not in {low} to {high}.")
        for name in ("job", "token"):
            if not isinstance(getattr(request, name), str):
                raise Refused(f"The request's {name} is not text.")
        if not 0 < len(request.job) <= _NAME_CHARACTERS:
            raise Refused(f"A job's name has 1 to {_NAME_CHARACTERS} characters.")
        values = min(request.values, max_values) // 4 * 4
        return cls(**{**vars(request), "values": values})


@dataclass
class AdmittedJob:
    """A job, complete when every rank has joined. leaving: how many ranks are done. ranks: what
    the caller knows a rank by."""

    name: str
    index: int
    key: int
    generation: int
    workers: int
    first: int
    slots: int
    values: int
    leaving: int = 0
    ranks: dict[int, Any] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all ranks are there."""
        return len(self.ranks) == self.workers


class Admission:
    """Jobs and the slots they hold. quota: most slots of a job; token: empty for none."""

    def __init__(self, jobs: int, slots: int, quota: int, token: str = "") -> None:
        self.slots, self.quota = slots, quota
        self._token = token
        self._generation = secrets.randbelow(_GENERATIONS)
        self._by_index: list[AdmittedJob | None] = [None] * jobs

    @property
    def jobs(self) -> list[AdmittedJob]:
        """Those admitted or being joined."""
        return [job for job in self._by_index if job]

    def join(self, request: Request, who: Any) -> AdmittedJob:
        """The job, with the rank in it; Refused where that can't be."""
        if not secrets.compare_digest(self._token.encode(), request.token.encode()):
            raise Refused("The aggregator's token is another one.")
        job = next((job for job in self.jobs if job.name == request.job), None)
        if job is None:
            job = self._open(request)
        if job.workers != request.workers:
            raise Refused(
                f"Job {job.name!r} has {job.workers} workers here, not {request.workers}."
            )
        if any((r.racks, r.rack) != (request.racks, request.rack) for r in job.requests.values()):
            raise Refused(f"Ranks of job {job.name!r} don't agree on its racks.")
        if job.complete or request.rank in job.ranks:
            raise Refused(f"Rank {request.rank} of job {job.name!r} is here already.")
        job.values = min(job.values, request.values)
        job.slots = min(job.slots, request.slots)  # a rack may have no more of its own
        job.ranks[request.rank] = who
        job.requests[request.rank] = request
        return job

    def end(self, job: AdmittedJob) -> None:
        """Give back what the job held. Ending it twice is fine."""
        if self._by_index[job.index] is job:
            self._by_index[job.index] = None

    def _open(self, request: Request) -> AdmittedJob:
        index = next((i for i, job in enumerate(self._by_index) if job is None), None)
        if index is None:
            raise Refused(f"The aggregator has {len(self._by_index)} jobs, and takes no more.")
        first, free = self._largest_gap()
        slots = min(request.slots, self.quota, free)
        if slots < 1:
            raise Refused(f"All {self.slots} slots of the aggregator are in use.")
        self._generation = (self._generation + 1) % _GENERATIONS
        key = 1 + secrets.randbelow(2**64 - 1)
        job = AdmittedJob(
            request.job,
            index,
            key,
            self._generation,
            request.workers,
            first,
            slots,
            request.values,
        )
        self._by_index[index] = job
        return job

    def _largest_gap(self) -> tuple[int, int]:
        taken = sorted((job.first, job.first + job.slots) for job in self.jobs)
        gaps, end = [], 0
        for first, after in taken:
            gaps.append((first - end, end))
            end = after
        size, first = max([*gaps, (self.slots - end, end)])
        return first, size
