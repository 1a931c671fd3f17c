# SPDX-License-Identifier: BSD-2-Clause
"""The aggregator's process: it admits jobs, has the kernel serve them, and tells how it stands.

A rank joins by a TCP connection and a line of JSON, and is in the job for as long as that
connection lives. When all ranks are there each is told the job's key. When one leaves, or its host
stops answering, the job is over and the others are told so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import BusyError, MltcpError
from mltcp_tools.collectives.admission import (
    Admission,
    AdmittedJob,
    Callers,
    Refused,
    Request,
)
from mltcp_tools.collectives.handshake import LEAVE, LINE_BYTES, NONCE_BYTES, Admitted
from mltcp_tools.collectives.library import constant
from mltcp_tools.collectives.programs import (
    XDP_VALUES,
    KernelJob,
    Peer,
    Programs,
    find_peer,
)
from mltcp_tools.kernel.host.locks import RUN_DIR

SCHEMA = "mltcp-aggregate/2"

SLOTS, JOB_SLOTS = 4096, 1024
"""Packets' worth of memory (8 kB each) for all jobs, and the most that one job gets."""

WAIT_S = 60.0
"""Time for which the first rank of a job waits for the last one."""

LINGER_S = 3.0
"""The time for which a job goes on after a rank has left it in peace."""

_REQUEST_S = 10.0
_REFUSALS_S = 1.0  # between two that are logged: anybody can cause them
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))


def control_path(name: str) -> Path:
    """The socket by which the commands of this host reach the aggregator called `name`."""
    return RUN_DIR / f"aggregate-{name}.sock"


def log_path(name: str) -> Path:
    """The log of the aggregator called `name`, where it runs in the background."""
    return RUN_DIR / f"aggregate-{name}.log"


log = logging.getLogger(__name__)


class Rank:
    """A rank's connection. over: when it is to end, with the sentence why."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.address = writer.get_extra_info("peername")[0]
        self.local_address = writer.get_extra_info("sockname")[0]

    def tell(self, **message: Any) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")

    def end(self, why: str) -> None:
        if not self.over.done():
            self.over.set_result(why)


class Daemon:
    """Serves until it is told to stop."""

    def __init__(self, programs: Programs, admission: Admission) -> None:
        self.programs, self.admission = programs, admission
        self._callers = Callers()
        self._in_kernel: dict[int, KernelJob] = {}
        self._refused_at = -_REFUSALS_S
        self._stop = asyncio.Event()

    async def serve(self, name: str) -> None:
        """Listen until SIGTERM, SIGINT or `mltcp collectives aggregator down`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        path = control_path(name)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        control = await asyncio.start_unix_server(self._command, path)
        path.chmod(0o600)
        server = await asyncio.start_server(
            self._rank, "0.0.0.0", self.programs.port, limit=LINE_BYTES
        )
        try:
            await self._stop.wait()
        finally:
            for job in self.admission.jobs:
                self._end(job, "The aggregator was taken down.")
            server.close()
            control.close()
            path.unlink(missing_ok=True)
            # Ranks' connections end in their own time, but not before they were told.
            await asyncio.sleep(0.05)

    async def _rank(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank = Rank(writer)
        try:
            self._callers.enter(rank.address)
        except Refused as error:
            rank.tell(refused=str(error))
            writer.close()
            return
        try:
            _keep_alive(writer)
            await self._serve_rank(rank, reader)
        finally:
            self._callers.leave(rank.address)

    async def _serve_rank(self, rank: Rank, reader: asyncio.StreamReader) -> None:
        """From a rank's request to its end."""
        writer, job, why = rank.writer, None, ""
        try:
            challenge = secrets.token_bytes(NONCE_BYTES)
            rank.tell(challenge=challenge.hex())
            line = await asyncio.wait_for(_line(reader), _REQUEST_S)
            token = self.admission.token
            most = constant("AGG_WORKERS_MAX"), constant("AGG_VALUES_MAX")
            request = Request.parse(line, token, challenge, *most)
            job = self.admission.join(request, rank)
            if job.complete:
                self.admission.admit(job)
                await self._admit(job)
            await self._stay(job, request, rank, reader)
        except (MltcpError, TimeoutError) as error:
            why = str(error) or "The request came too late."
            self._log_refusal(rank, why)
            rank.tell(refused=why)
        except OSError:
            pass  # it is gone; the job ends below
        finally:
            if job and job.ranks:
                self._end(job, why or f"Rank {_rank_of(job, rank)} left.")
            with contextlib.suppress(OSError):
                await writer.drain()
            writer.close()

    async def _stay(
        self, job: AdmittedJob, request: Request, rank: Rank, reader: asyncio.StreamReader
    ) -> None:
        """Until the connection or the job ends."""
        gone = asyncio.ensure_future(reader.read(len(LEAVE)))
        waiting: list[asyncio.Future[Any]] = [gone, rank.over]
        waited = None if job.complete else WAIT_S
        try:
            while True:
                await asyncio.wait(waiting, timeout=waited, return_when=asyncio.FIRST_COMPLETED)
                if rank.over.done():
                    rank.tell(ended=rank.over.result())
                    return
                if gone.done():
                    job.leaving += gone.result() == LEAVE
                    if gone.result() == LEAVE and job.leaving < job.workers:
                        # Its last sum may have been lost on the way to another rank.
                        await asyncio.wait([rank.over], timeout=LINGER_S)
                    return
                if not job.complete:
                    missing = sorted(set(range(job.workers)) - set(job.ranks))
                    raise Refused(
                        f"After {WAIT_S:g} s these ranks of job {job.name!r} had not joined:"
                        f" {', '.join(map(str, missing))}."
                    )
                waited = None
        finally:
            gone.cancel()

    async def _admit(self, job: AdmittedJob) -> None:
        # pyroute2 has an event loop of its own, so it works in another thread.
        peers = await asyncio.to_thread(self._find_peers, job)
        if not job.complete:  # a rank left meanwhile, and the job with it
            return
        by_tc = self.programs.goes_through_tc(peers)
        job.values = job.values if by_tc else min(job.values, XDP_VALUES)
        kernel = KernelJob(
            job.index,
            job.key,
            job.secret,
            job.generation,
            job.first,
            job.slots,
            job.values,
            peers,
        )
        self.programs.add(kernel)
        self._in_kernel[job.index] = kernel
        cuts = self.programs.needs_cutting(peers)
        admitted = Admitted(
            job.index, job.generation, job.key, job.slots, job.values, cuts, job.nonce
        )
        for rank in job.ranks.values():
            rank.tell(**admitted.message())
        way = "tc" if by_tc else "XDP"
        log.info("Job %s: %d workers, %d slots, %s.", job.name, job.workers, job.slots, way)

    def _log_refusal(self, rank: Rank, why: str) -> None:
        if time.monotonic() - self._refused_at >= _REFUSALS_S:
            self._refused_at = time.monotonic()
            log.info("Refused %s: %s", rank.address, why)

    def _find_peers(self, job: AdmittedJob) -> list[Peer]:
        return [
            find_peer(
                job.ranks[rank].address,
                job.requests[rank].udp_port,
                job.ranks[rank].local_address,
                self.programs.port,
            )
            for rank in range(job.workers)
        ]

    def _end(self, job: AdmittedJob, why: str) -> None:
        kernel = self._in_kernel.pop(job.index, None)
        if kernel:
            self.programs.remove(kernel)
            log.info("Job %s ended: %s", job.name, why)
        self.admission.end(job)
        ranks, job.ranks = job.ranks, {}
        for rank in ranks.values():
            rank.end(why)

    async def _command(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, Refused):
            word = (await asyncio.wait_for(_line(reader), _REQUEST_S)).strip()
            if word == b"down":
                self._stop.set()
            writer.write(json.dumps(self.status()).encode() + b"\n")
            await writer.drain()
        writer.close()

    def status(self) -> dict[str, Any]:
        """Document of `mltcp collectives aggregator status --json`; counters are read from the
        kernel."""
        return {
            "schema": SCHEMA,
            "process": os.getpid(),
            "interfaces": self.programs.interfaces,
            "port": self.programs.port,
            "slots": self.admission.slots,
            "foreign": self.programs.foreign(),
            "busy_s": self.programs.busy_s(),
            "bytes": self.programs.added_bytes(),
            "jobs": [
                {
                    "name": job.name,
                    "workers": job.workers,
                    "joined": len(job.ranks),
                    "slots": job.slots if job.is_admitted else 0,
                    "values": job.values,
                    "counters": self.programs.counters(job.index if job.is_admitted else None),
                }
                for job in self.admission.jobs
            ],
        }


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Have the kernel notice within seconds that the host at the other end is gone."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _rank_of(job: AdmittedJob, rank: Rank) -> str:
    return next((str(number) for number, each in job.ranks.items() if each is rank), "?")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise Refused("That is not a request.") from None
    if len(line) > LINE_BYTES:
        raise Refused("The request is too long.")
    return line


def run_daemon(
    interfaces: list[str], *, name: str, port: int, token: str, mode: str = "auto"
) -> None:
    """Run an aggregator until it is told to end.

    token: empty for one that is open to all. mode: as for Programs.
    """
    if is_up(name):
        raise BusyError(
            f"An aggregator called {name!r} is up; `mltcp collectives aggregator down` ends it,"
            f" --name makes"
            " another."
        )
    _allow_connections()
    programs = Programs(interfaces, mode, SLOTS, port)
    try:

        async def main() -> None:
            admission = Admission(constant("AGG_JOBS_MAX"), SLOTS, JOB_SLOTS, token)
            await Daemon(programs, admission).serve(name)

        asyncio.run(main())
    finally:
        programs.close()


def _allow_connections() -> None:
    """As many descriptors as callers may have, and some; the usual limit is half of that."""
    wanted = 2 * Callers.MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))


def ask(name: str, word: str) -> dict[str, Any] | None:
    """The aggregator's answer to a command, None when none is up."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_REQUEST_S)
        try:
            connection.connect(str(control_path(name)))
            connection.sendall(word.encode() + b"\n")
            with connection.makefile("rb") as answer:
                document: dict[str, Any] = json.loads(answer.readline())
        except (ConnectionError, FileNotFoundError):
            return None
    return document


def is_up(name: str) -> bool:
    """Tell whether an aggregator of that name is up on this host."""
    return ask(name, "status") is not None
