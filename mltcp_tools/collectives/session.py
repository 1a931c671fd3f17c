# SPDX-License-Identifier: BSD-2-Clause
"""A rank's part in a job at an aggregator: joining, its packets' socket, and what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.collectives.handshake import (
    LEAVE,
    LINE_BYTES,
    Admitted,
    MessageError,
    packet_secret,
    parse,
    prove,
    read_nonce,
    read_sentence,
)
from mltcp_tools.collectives.library import Chunks, How, Kind, State, Worker, constant, secret_of

SLOTS = 1024
"""Slots asked for: they cover 1.5 MB on the way, 10 Gbit/s for 1.2 ms; a large tensor uses all."""

_SO_NO_CHECK = 11
_IP_MTU, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 14, 10, 2
_OVERHEAD_BYTES = 20 + 8 + 56  # IPv4, UDP and ours
_FIELDS_BYTES = 320 + 64  # that the kernel keeps behind a packet, and room before it
_MIN_RTO_US = 10_000
_PROBE_S = 3.0
_PROBE_PACKETS = 32  # two windows
_LAST_WORDS_S = 1.0
PORT = 17749
"""UDP port of the packets, and TCP port of the admission."""

NOT_ALL = "other ranks may not have joined."
"""End of a sentence on other ranks, which know better why."""


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


class Session:
    """A rank of an admitted job; joining waits until all ranks have joined.

    data_port: UDP port of its packets. admitted: what the aggregator granted.

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
        timeout_s: float = 30.0,
    ) -> None:
        self.endpoint, self.rank, self.workers = endpoint, rank, workers
        self.broken: str | None = None
        self._worker: Worker | None = None
        self._control = self._connect(timeout_s)
        self._data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._data.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            self._data.connect((endpoint.address, endpoint.port))
            fits = (self._data.getsockopt(socket.IPPROTO_IP, _IP_MTU) - _OVERHEAD_BYTES) // 4
            self.data_port: int = self._data.getsockname()[1]
            request = {
                "job": job,
                "workers": workers,
                "rank": rank,
                "udp_port": self.data_port,
                "values": min(fits, constant("AGG_VALUES_MAX")),
                "slots": slots,
            }
            admitted = self.admitted = self._join(request, timeout_s)
            if not admitted.cuts:
                # Our own check covers more; what the kernel cuts into packets needs UDP's, too.
                self._data.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
            self._widen(admitted.slots, admitted.values)
            self.values = admitted.values
            self._worker = Worker(
                self._data.fileno(),
                self._control.fileno(),
                secret=secret_of(packet_secret(endpoint.token, admitted.nonce, job)),
                key=admitted.key,
                job=admitted.job,
                generation=admitted.generation,
                slots=admitted.slots,
                values=admitted.values,
                workers=workers,
                rank=rank,
                min_rto_us=_MIN_RTO_US,
            )
            self._probe(min(_PROBE_S, timeout_s))
        except BaseException:
            self.close()
            raise

    def _probe(self, timeout_s: float) -> None:
        """Send what reductions send; SessionError where it doesn't pass both ways."""
        array = np.zeros(_PROBE_PACKETS * self.values, dtype=np.int32)
        at = array.ctypes.data
        state = self.worker.reduce(at, at, array.size, Kind.INT32, How.SUM, timeout_s)
        packets = f"UDP packets of {4 * self.values + _OVERHEAD_BYTES} bytes"
        # Where short packets pass, the aggregator says that this rank's are missing.
        if state is State.SILENT or (state is State.WAITING and not self.counters().missing):
            raise SessionError(
                f"{packets} don't pass to the aggregator at {self.endpoint.address} and back: a"
                " filter drops them, or the path's MTU is smaller than this host's."
            )
        if state is State.WAITING:
            who = self._sentence(state, timeout_s).rstrip(".")
            raise SessionError(f"{who}; {packets} may not pass from there to the aggregator.")
        if state is not State.DONE:
            raise SessionError(self._sentence(state, timeout_s))
        # Not one came unasked, but when this rank asked for it again, and tc answered.
        counted = self.counters()
        if counted.losses >= _PROBE_PACKETS // 2 and not counted.srtt_us:
            raise SessionError(
                f"Sums of the aggregator at {self.endpoint.address} are lost on the way here: XDP"
                " sends to a veth only where GRO is on at its other end (`ethtool -K eth0 gro on`"
                " here)."
            )

    def _connect(self, timeout_s: float) -> socket.socket:
        address = (self.endpoint.address, self.endpoint.port)
        try:
            return socket.create_connection(address, timeout_s)
        except OSError as error:
            raise SessionError(
                f"No aggregator answers at {address[0]}:{address[1]} ({error.strerror or error});"
                " `mltcp collectives aggregator up` starts one."
            ) from None

    def _join(self, request: dict[str, Any], timeout_s: float) -> Admitted:
        where, within = f"The aggregator at {self.endpoint.address}", f" within {timeout_s:g} s"
        try:
            greeting = self._read_message(timeout_s)
            if refusal := read_sentence(greeting, "refused"):
                raise SessionError(refusal)
            proof = prove(self.endpoint.token, read_nonce(greeting, "challenge"), request)
            answer = json.dumps({"join": request, "proof": proof})
            self._control.sendall(answer.encode() + b"\n")
            try:
                message = self._read_message(timeout_s)
            except TimeoutError:
                raise SessionError(f"{where} did not admit the job{within}; {NOT_ALL}") from None
            if refusal := read_sentence(message, "refused", "ended"):
                raise SessionError(refusal)
            return Admitted.parse(message, request["slots"], request["values"])
        except MessageError as error:
            raise SessionError(
                f"{where} sent an invalid answer ({str(error).rstrip('.')}); run the same version"
                " of MLTCP on both."
            ) from None
        except OSError as error:
            raise SessionError(f"{where} did not admit the job{within} ({error}).") from None

    def _read_message(self, timeout_s: float) -> dict[str, Any]:
        """The next message. MessageError where it isn't one; OSError after timeout_s, or at the end
        of the connection."""
        line, until = b"", time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            if len(line) == LINE_BYTES:
                raise MessageError("The message is too long.")
            self._control.settimeout(max(until - time.monotonic(), 1e-3))
            byte = self._control.recv(1)  # what follows is for another time
            if not byte:
                raise ConnectionError(_HUNG_UP)
            line += byte
        return parse(line)

    def _widen(self, slots: int, values: int) -> None:
        """Room for an answer to every slot, as far as this process may have it."""
        # The kernel counts the power of two that a packet and its own fields fit into, and more.
        packet = 4 * values + _OVERHEAD_BYTES + _FIELDS_BYTES
        wanted = slots * ((1 << packet.bit_length()) + 256)
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

    @property
    def worker(self) -> Worker:
        """This rank's; AssertionError after `close`."""
        assert self._worker is not None, "the session is closed"
        return self._worker

    def _sentence(self, state: State, timeout_s: float) -> str:
        where = f"the aggregator at {self.endpoint.address}"
        if state is State.CONTROL:
            with contextlib.suppress(OSError, MessageError):
                ended = read_sentence(self._read_message(_LAST_WORDS_S), "ended")
                if ended:
                    return f"The job at {where} is over: {ended}"
            return f"The connection to {where} ended: it is gone."
        if state is State.SILENT:
            return f"Nothing came from {where} for {timeout_s:g} s."
        if state is State.WAITING:
            counted = self.counters()
            numbers = [str(each) for each in range(64) if counted.missing >> each & 1]
            if not numbers:
                return f"No packet with values reached {where} from here for {timeout_s:g} s."
            return f"Ranks {', '.join(numbers)} sent nothing for {timeout_s:g} s."
        if state is State.MISMATCH:
            return "Ranks asked for different collectives: other sizes, types or an other order."
        if state is State.TOO_LONG:
            return f"The path to {where} takes no packets as large as it did; its MTU has changed."
        if state is State.STOPPED:
            return "The collective was stopped."
        return f"The worker ended in state {state.name}: an answer of {where} can't be right."

    def over(self) -> str:
        """Reason why the job has ended: the aggregator's, or that it is gone; else empty."""
        if self.broken or self._worker is None:
            return self.broken or ""
        if select.select([self._control], [], [], 0)[0]:
            self.broken = self._sentence(State.CONTROL, 0.0)
        return self.broken or ""

    def counters(self) -> Any:
        """The worker's counts (library.Counters)."""
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


_HUNG_UP = "it hung up without a word; its log says more"


def endpoint_from_environment() -> Endpoint | None:
    """MLTCP_AGGREGATOR=HOST[:PORT], and MLTCP_AGGREGATOR_TOKEN; None where there is none."""
    text = os.environ.get("MLTCP_AGGREGATOR")
    return Endpoint.parse(text, os.environ.get("MLTCP_AGGREGATOR_TOKEN", "")) if text else None
