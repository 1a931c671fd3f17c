"""An aggregator as a worker of the aggregator above it: a rack's sum is one of several there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import Any

from mltcp_tools.collectives.admission import LINE_BYTES, AdmittedJob, Refused, Request
from mltcp_tools.collectives.programs import KernelParent, find_peer
from mltcp_tools.collectives.session import LEAVE, Endpoint

_KEEPALIVE = ((socket.TCP_KEEPIDLE, 3), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))


def keep_alive(writer: asyncio.StreamWriter) -> None:
    """Have the kernel notice within seconds that the host at the other end is gone."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Joined:
    """A job's place at the aggregator above. slots, values: what that one allows.

    task: what waits for the end of it.
    """

    def __init__(
        self,
        above: Endpoint,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        parent: KernelParent,
        slots: int,
        values: int,
    ) -> None:
        self._above, self._reader, self._writer = above, reader, writer
        self.parent, self.slots, self.values = parent, slots, values
        self.task: asyncio.Task[None] | None = None

    async def ended(self) -> str:
        """Wait for the end of the job there; why it ended."""
        with contextlib.suppress(OSError, ValueError):
            answer = json.loads(await self._reader.readline())
            return f"Above: {answer['ended']}"
        return f"The aggregator above, {self._above.address}:{self._above.port}, is gone."

    def close(self, *, in_peace: bool = False) -> None:
        """Leave the job there, which ends it for all racks. Closing twice is fine.

        in_peace: all ranks here are done, so that other racks may still fetch their last sums.
        """
        if in_peace and not self._writer.is_closing():
            self._writer.write(LEAVE + b"\n")
        self._writer.close()
        if self.task and self.task is not asyncio.current_task():
            self.task.cancel()


async def join_above(
    above: Endpoint, job: AdmittedJob, request: Request, udp_port: int, wait_s: float
) -> Joined:
    """Join; Refused, with a sentence, where that can't be."""
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(above.address, above.port, limit=LINE_BYTES), wait_s
        )
    except (OSError, TimeoutError) as error:
        raise Refused(
            f"The aggregator above, {above.address}:{above.port}, doesn't answer ({error})."
        ) from None
    keep_alive(writer)
    asked = {
        "job": job.name,
        "workers": request.racks,
        "rank": request.rack,
        "udp_port": udp_port,
        "values": job.values,
        "slots": job.slots,
        "token": above.token,
    }
    writer.write(json.dumps({"join": asked}).encode() + b"\n")
    try:
        answer: dict[str, Any] = json.loads(await asyncio.wait_for(reader.readline(), wait_s + 5))
        admitted = answer["admitted"]
    except (OSError, TimeoutError, ValueError, KeyError):
        writer.close()
        raise Refused(f"The aggregator above did not admit job {job.name!r}.") from None
    local = writer.get_extra_info("sockname")[0]
    peer = await asyncio.to_thread(
        find_peer, writer.get_extra_info("peername")[0], above.port, local, udp_port
    )
    parent = KernelParent(
        admitted["key"],
        bytes.fromhex(admitted["secret"]),
        admitted["generation"],
        admitted["job"],
        request.rack,
        peer,
    )
    return Joined(above, reader, writer, parent, admitted["slots"], admitted["values"])
