# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that an aggregator serves: ranks, slots and keys. Knows of no socket and no kernel."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.collectives.handshake import (
    NONCE_BYTES,
    MessageError,
    packet_secret,
    parse,
    prove,
    read_number,
)

_NAME_CHARACTERS = 128
_GENERATIONS = 2**32


class Refused(MltcpError):
    """A request that isn't granted, with the sentence that the worker is told."""


_WRONG_TOKEN = "The aggregator's token is another one; set MLTCP_AGGREGATOR_TOKEN."
_NO_TOKEN = "The aggregator has no token (--open); unset MLTCP_AGGREGATOR_TOKEN."


@dataclass(frozen=True)
class Request:
    """A rank that wants to join a job.

    workers: of the job. udp_port: of its packets. values: most that fit into a packet of its path.
    slots: how many it would like.
    """

    job: str
    workers: int
    rank: int
    udp_port: int
    values: int
    slots: int

    @classmethod
    def parse(
        cls, line: bytes, token: str, challenge: bytes, max_workers: int, max_values: int
    ) -> Request:
        """From a line that anybody may have sent; Refused where it isn't a proven request."""
        try:
            message = parse(line)
            fields, proof = message.get("join"), message.get("proof")
            if not isinstance(fields, dict) or not isinstance(proof, str):
                raise MessageError("That is not a request to join a job.")
            if not all(isinstance(each, int | str) for each in fields.values()):
                raise MessageError("A request has only numbers and texts.")
            expected = prove(token, challenge, fields)
            if not secrets.compare_digest(expected.encode(), proof.encode(errors="replace")):
                raise Refused(_WRONG_TOKEN if token else _NO_TOKEN)
            workers = read_number(fields, "workers", 1, max_workers)
            return cls(
                job=_job_name(fields.get("job")),
                workers=workers,
                rank=read_number(fields, "rank", 0, workers - 1),
                udp_port=read_number(fields, "udp_port", 1, 2**16 - 1),
                values=min(read_number(fields, "values", 4, 2**16), max_values) // 4 * 4,
                slots=read_number(fields, "slots", 1, 2**16),
            )
        except MessageError as error:
            raise Refused(str(error)) from None


def _job_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_CHARACTERS:
        raise MessageError(f"A job's name is a text of 1 to {_NAME_CHARACTERS} characters.")
    if not name.isprintable():
        raise MessageError("A job's name has no line breaks and no other control characters.")
    return name


@dataclass
class AdmittedJob:
    """A job, admitted when every rank has joined; before that it holds nothing.

    leaving: how many ranks are done. ranks: what the caller keeps of each. index, generation,
    first, slots: at the aggregator. key, secret: what all packets show, and what none does.
    nonce: that the ranks make the secret of.
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
    nonce: bytes = b""
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

    token: what ranks must know; empty for an aggregator that is open to all.
    """

    def __init__(self, jobs: int, slots: int, quota: int, token: str) -> None:
        self.slots, self.quota = slots, quota
        self.token = token
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
        job.nonce = secrets.token_bytes(NONCE_BYTES)
        job.secret = packet_secret(self.token, job.nonce, job.name)
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
