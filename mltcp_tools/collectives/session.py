"""A rank's part in a job at an aggregator: joining, its packets' socket, and what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from typing import Any

from mltcp_tools.collectives.library import Chunks, How, Kind, State, Worker
from mltcp_tools.errors import MltcpError, UsageError

SLOTS = 256
"""Slots asked for: they cover 0.4 MB on the way."""

_SO_NO_CHECK = 11
_IP_MTU, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 14, 10, 2
_OVERHEAD_BYTES = 20 + 8 + 56  # IPv4, UDP and ours
_MIN_RTO_US = 10_000
PORT = 17749
"""UDP port of the packets, and TCP port of the admission."""

LEAVE = b"leave"
"""What a rank says to the aggregator when it is done."""


class SessionError(MltcpError):
    """The job at the aggregator can't go on; the sentence says why."""


@dataclass(frozen=True)
class Endpoint:
    """An aggregator. token: what it asks of everybody, where it does."""

    address: str
    port: int
    token: str = ""

    @classmethod
    def parse(cls, text: str, token: str = "") -> Endpoint:
        """From HOST or HOST:PORT."""
        host, _, port = text.partition(":")
        if not host or (port and not (port.isdigit() and 0 < int(port) < 65536)):
            raise UsageError(f"{text!r} is not an aggregator; write it like 10.0.0.254:{PORT}.")
        return cls(host, int(port or PORT), token)


@dataclass(frozen=True)
class Place:
    """Where a rank is in a job of several racks, each with an aggregator of its own.

    rank, workers: within the rack. racks: how many; rack: which.
    """

    rank: int
    workers: int
    rack: int
    racks: int


class Session:
    """A rank of an admitted job; joining waits until all ranks have joined.

    place: where the job has several racks; rank and workers are of the whole job.

    Raises SessionError where the aggregator refuses, or doesn't answer for timeout_s. A session
    that failed once can't be used again: join another job.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        job: str,
        rank: int,
        workers: int,
        *,
        slots: int = SLOTS,
        values: int | None = None,
        timeout_s: float = 30.0,
        place: Place | None = None,
    ) -> None:
        place = place or Place(rank, workers, 0, 1)
        self.endpoint, self.rank, self.workers = endpoint, rank, workers
        self.broken: str | None = None
        self._racks = place.racks
        self._worker: Worker | None = None
        self._control = self._connect(timeout_s)
        self._data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._data.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)  # ours covers more
            self._data.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            self._data.connect((endpoint.address, endpoint.port))
            fits = (self._data.getsockopt(socket.IPPROTO_IP, _IP_MTU) - _OVERHEAD_BYTES) // 4
            request = {
                "job": job,
                "workers": place.workers,
                "rank": place.rank,
                "racks": place.racks,
                "rack": place.rack,
                "udp_port": self._data.getsockname()[1],
                "values": min(fits, values or fits),
                "slots": slots,
                "token": endpoint.token,
            }
            admitted = self._join(request, timeout_s)
            self._widen(admitted["slots"])
            self.values: int = admitted["values"]
            self._worker = Worker(
                self._data.fileno(),
                self._control.fileno(),
                key=admitted["key"],
                job=admitted["job"],
                generation=admitted["generation"],
                slots=admitted["slots"],
                values=admitted["values"],
                workers=workers,
                rank=rank,
                sender=place.rank,
                min_rto_us=_MIN_RTO_US,
            )
        except BaseException:
            self.close()
            raise

    def _connect(self, timeout_s: float) -> socket.socket:
        address = (self.endpoint.address, self.endpoint.port)
        try:
            return socket.create_connection(address, timeout_s)
        except OSError as error:
            raise SessionError(
                f"No aggregator answers at {address[0]}:{address[1]} ({error.strerror or error});"
                " `mltcp aggregate up` starts one."
            ) from None

    def _join(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        self._control.settimeout(timeout_s)
        try:
            self._control.sendall(json.dumps({"join": request}).encode() + b"\n")
            answer = self._read_line()
        except OSError as error:
            raise SessionError(
                f"The aggregator at {self.endpoint.address} did not admit the job within"
                f" {timeout_s:g} s ({error})."
            ) from None
        if "admitted" not in answer:
            raise SessionError(answer.get("refused") or answer.get("ended") or _HUNG_UP)
        admitted: dict[str, Any] = answer["admitted"]
        return admitted

    def _read_line(self) -> dict[str, Any]:
        line = b""
        while not line.endswith(b"\n"):
            byte = self._control.recv(1)  # what follows is for another time
            if not byte:
                return {}
            line += byte
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            return {}
        return answer

    def _widen(self, slots: int) -> None:
        """Room for an answer to every slot, as far as this process may have it."""
        wanted = slots * 2304  # what the kernel counts for a packet of 1500 bytes
        for option in (socket.SO_RCVBUF, 33):  # 33: SO_RCVBUFFORCE, for root
            with contextlib.suppress(PermissionError):
                self._data.setsockopt(socket.SOL_SOCKET, option, wanted)

    def reduce(
        self,
        source: int,
        target: int,
        count: int,
        kind: Kind,
        how: How,
        timeout_s: float,
        chunks: Chunks | None = None,
    ) -> bool:
        """One collective, as Worker.reduce; every rank calls it with the same arguments.

        False where an infinity or NaN was among the values: then no rank has a result. Raises
        SessionError where it can't be done; some ranks may have their result then.
        """
        if self.broken:
            raise SessionError(self.broken)
        state = self.worker.reduce(source, target, count, kind, how, timeout_s, chunks)
        if state in (State.DONE, State.NONFINITE):
            return state is State.DONE
        self.broken = self._sentence(state, timeout_s)
        raise SessionError(self.broken)

    def expect(self, before: int, total: int) -> None:
        """Which part of an iteration the next collective is, as Worker.expect."""
        self.worker.expect(before, total)

    @property
    def worker(self) -> Worker:
        """This rank's; AssertionError after `close`."""
        assert self._worker is not None, "the session is closed"
        return self._worker

    def _sentence(self, state: State, timeout_s: float) -> str:
        where = f"the aggregator at {self.endpoint.address}"
        if state is State.CONTROL:
            with contextlib.suppress(OSError):
                self._control.settimeout(1.0)
                answer = self._read_line()
                if "ended" in answer:
                    return f"The job at {where} is over: {answer['ended']}"
            return f"The connection to {where} ended: it is gone."
        if state is State.SILENT:
            above = ", or from the one above it," if self._racks > 1 else ""
            return f"Nothing came from {where}{above} for {timeout_s:g} s."
        if state is State.WAITING:
            counted = self.counters()
            numbers = [str(each) for each in range(64) if counted.missing >> each & 1]
            who = "Racks" if counted.missing_above else "Ranks"
            who += f" {', '.join(numbers) or '?'}"
            if self._racks > 1 and not counted.missing_above:
                who += " of this rack"
            return f"{who} sent nothing for {timeout_s:g} s."
        if state is State.MISMATCH:
            return "Ranks asked for different collectives: other sizes, types or an other order."
        if state is State.STOPPED:
            return "The collective was stopped."
        return f"The worker ended in state {state.name}: an answer of {where} can't be right."

    def counters(self) -> Any:
        """What the worker counted (library.Counters)."""
        return self.worker.counters()

    def stop(self) -> None:
        """End the collective of another thread."""
        if self._worker:
            self._worker.stop()

    def leave(self) -> None:
        """Leave as one whose work is done: others have some seconds to get what they lack."""
        with contextlib.suppress(OSError):
            self._control.sendall(LEAVE + b"\n")
        self.close()

    def close(self) -> None:
        """Leave the job, which ends it for all ranks. Closing twice is fine."""
        self._control.close()
        self._data.close()
        if self._worker:
            self._worker.close()
            self._worker = None


_HUNG_UP = "The aggregator hung up without a word; its own messages say more."


def endpoint_from_environment() -> Endpoint | None:
    """MLTCP_AGGREGATOR=HOST[:PORT], and MLTCP_AGGREGATOR_TOKEN; None where there is none."""
    text = os.environ.get("MLTCP_AGGREGATOR")
    return Endpoint.parse(text, os.environ.get("MLTCP_AGGREGATOR_TOKEN", "")) if text else None
