"""Jobs that an aggregator serves: ranks, slots and keys. Knows of no socket and no kernel."""

from __future__ import annotations

import json
import secrets
from collections import Counter
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

    workers: of the job. udp_port: of its packets. values: most that fit into a
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
    """A job, admitted when every rank has joined; before that it holds nothing.

    leaving: how many ranks are done. ranks: what the caller keeps of each. index, generation,
    first, slots: at the aggregator. key, secret: what all packets show, and what none does.
    """

    name: str
    workers: int
    slots: int
    values: int
    leaving: int = 0
    ranks: dict[int, Any] = field(default_factory=dict)
    requests: dict[int, Request] = field(default_factory=dict)
    index: int = -1
    generation: int = 0
    first: int = 0
    key: int = 0
    secret: bytes = b""

    @property
    def complete(self) -> bool:
        """Tell whether all ranks are there."""
        return len(self.ranks) == self.workers

    @property
    def is_admitted(self) -> bool:
        """Tell whether it has a place at the aggregator."""
        return self.index >= 0


class Admission:
    """Jobs and the slots they hold. quota: most slots of a job.

    token: what ranks must know; None for an aggregator that is open to all.
    """

    def __init__(self, jobs: int, slots: int, quota: int, token: str | None) -> None:
        self.slots, self.quota = slots, quota
        self._token = token
        self._generation = secrets.randbelow(_GENERATIONS)
        self._waiting: dict[str, AdmittedJob] = {}
        self._by_index: list[AdmittedJob | None] = [None] * jobs

    @property
    def jobs(self) -> list[AdmittedJob]:
        """Return the jobs admitted or being joined."""
        return [*(job for job in self._by_index if job), *self._waiting.values()]

    def join(self, request: Request, who: Any) -> AdmittedJob:
        """The job, with the rank in it; Refused where that can't be.

        The last rank's job is admitted. Where it can't be, its ranks are those of a job that ends.
        """
        if self._token is not None and not secrets.compare_digest(
            self._token.encode(), request.token.encode()
        ):
            raise Refused("The aggregator's token is another one; set MLTCP_AGGREGATOR_TOKEN.")
        job = next((job for job in self.jobs if job.name == request.job), None)
        if job is None:
            job = AdmittedJob(
                request.job, request.workers, min(request.slots, self.quota), request.values
            )
            self._waiting[job.name] = job
        if job.workers != request.workers:
            raise Refused(
                f"Job {job.name!r} has {job.workers} workers here, not {request.workers}."
            )
        if job.complete or request.rank in job.ranks:
            raise Refused(f"Rank {request.rank} of job {job.name!r} is here already.")
        job.values = min(job.values, request.values)
        job.slots = min(job.slots, request.slots)
        job.ranks[request.rank] = who
        job.requests[request.rank] = request
        return job

    def admit(self, job: AdmittedJob) -> None:
        """Give a complete job its place, slots and keys; Refused where there are none."""
        index = next((i for i, each in enumerate(self._by_index) if each is None), None)
        if index is None:
            raise Refused(f"The aggregator has {len(self._by_index)} jobs, and takes no more.")
        first, free = self._largest_gap()
        if free < 1:
            raise Refused(f"All {self.slots} slots of the aggregator are in use.")
        self._generation = (self._generation + 1) % _GENERATIONS
        job.index, job.generation, job.first = index, self._generation, first
        job.slots = min(job.slots, free)
        job.key = 1 + secrets.randbelow(2**64 - 1)
        job.secret = secrets.token_bytes(16)
        del self._waiting[job.name]
        self._by_index[index] = job

    def end(self, job: AdmittedJob) -> None:
        """Give back what the job held. Ending it twice is fine."""
        if self._waiting.get(job.name) is job:
            del self._waiting[job.name]
        if job.is_admitted and self._by_index[job.index] is job:
            self._by_index[job.index] = None

    def _largest_gap(self) -> tuple[int, int]:
        """The begin of the most free slots in a row, and their number."""
        admitted = [job for job in self._by_index if job]
        taken = sorted((job.first, job.first + job.slots) for job in admitted)
        gaps, end = [], 0
        for first, after in taken:
            gaps.append((first - end, end))
            end = after
        size, first = max([*gaps, (self.slots - end, end)])
        return first, size


class Callers:
    """Counts of connections, all in all and of each address; it lets no more in.

    Many ranks may be behind one address, but none has a use for more connections than this.
    """

    MOST, MOST_OF_ADDRESS = 2048, 256

    def __init__(self) -> None:
        self._of_address: Counter[str] = Counter()

    def enter(self, address: str) -> None:
        """One more; Refused where there are too many."""
        if self._of_address[address] >= self.MOST_OF_ADDRESS:
            raise Refused(f"{address} has {self.MOST_OF_ADDRESS} connections here already.")
        if self._of_address.total() >= self.MOST:
            raise Refused(f"The aggregator has {self.MOST} connections, and takes no more.")
        self._of_address[address] += 1

    def leave(self, address: str) -> None:
        """One less."""
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]
