# SPDX-License-Identifier: BSD-2-Clause
"""Two lines in a training loop that tell the agent on this host where iterations begin and end.

    job = mltcp_tools.hooks.Job("gpt2")
    for batch in batches:
        with job.iteration():
            train(batch)

Instead of the `with` block, a loop can call `job.step()` once per iteration. PyTorch's DDP can do
all of this: `model.register_comm_hook(*mltcp_tools.hooks.ddp_hook(job))`.

Each iteration is one datagram to the agent's socket. Nothing here waits, raises or needs a
privilege: without an agent that reads it, the datagram is dropped, and training continues. The
environment variables MLTCP_JOB and MLTCP_AGENT_SOCKET name the job and the agent's socket. This
module imports only the standard library, so that it can be copied into any training image.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from typing import Any

AGENT_SOCKET = "/run/mltcp/agent.sock"
"""The agent's socket unless MLTCP_AGENT_SOCKET names another."""

MESSAGE = struct.Struct("=4sHHQQQQQ64s")
"""One iteration: MAGIC, VERSION, 0, its number from 1, when it began and ended (nanoseconds of
CLOCK_MONOTONIC), how long it communicated (nanoseconds), bytes handed to collectives (of this
process), the job's name in UTF-8 filled up with 0. UNKNOWN stands for what isn't known."""

MAGIC = b"MLTI"
VERSION = 1
UNKNOWN = 2**64 - 1
NAME_BYTES = 63

_RETRY_NS = 1_000_000_000


class Job:
    """The training job that this process works for.

    name: the job's name (default: MLTCP_JOB of the environment); if it is empty, the agent's rules
    name the job. sent, dropped: numbers of datagrams.
    """

    def __init__(self, name: str | None = None) -> None:
        self.sent = 0
        self.dropped = 0
        self._name = _name_bytes(os.environ.get("MLTCP_JOB", "") if name is None else name)
        self._path = os.environ.get("MLTCP_AGENT_SOCKET") or AGENT_SOCKET
        self._socket: socket.socket | None = None
        self._retry_ns = 0
        self._number = 0
        self._begin_ns: int | None = None
        self._busy_ns: int | None = None
        self._bytes: int | None = None
        self._explicit = False

    def iteration(self, bytes: int | None = None) -> Iteration:
        """A context manager around one iteration.

        bytes: bytes that this process hands to its collectives in it, if known.
        """
        self._explicit = True
        return Iteration(self, bytes)

    def step(self, bytes: int | None = None) -> None:
        """End an iteration, and begin the next one. Call it once per iteration of the loop."""
        self._explicit = True
        self._next(bytes)

    def communicated(self, bytes: int, begin_ns: int, end_ns: int) -> None:
        """Add a collective to the current iteration: its bytes, its begin and its end.

        Times are nanoseconds of CLOCK_MONOTONIC; collectives that overlap in time count twice.
        """
        try:
            self._bytes = (self._bytes or 0) + bytes
            self._busy_ns = (self._busy_ns or 0) + max(0, end_ns - begin_ns)
        except TypeError:
            self.dropped += 1

    def _next(self, bytes: int | None) -> None:
        now = time.monotonic_ns()
        if self._begin_ns is not None:
            self._finish(self._begin_ns, now, bytes)
        self._begin_ns = now

    def _finish(self, begin_ns: int, end_ns: int, bytes: int | None) -> None:
        self._number += 1
        known = self._bytes if bytes is None else bytes
        busy_ns = self._busy_ns
        self._bytes = self._busy_ns = None
        try:
            message = MESSAGE.pack(
                MAGIC,
                VERSION,
                0,
                self._number,
                begin_ns,
                end_ns,
                UNKNOWN if busy_ns is None else busy_ns,
                UNKNOWN if known is None else known,
                self._name,
            )
        except struct.error:  # bytes was no number, or none that fits
            self.dropped += 1
            return
        self._send(message, end_ns)

    def _send(self, message: bytes, now_ns: int) -> None:
        """Send without waiting; after a failure look for the agent again a second later."""
        try:
            if self._socket is None:
                if now_ns < self._retry_ns:
                    self.dropped += 1
                    return
                self._connect()
            assert self._socket is not None
            self._socket.send(message)
            self.sent += 1
        except BlockingIOError:  # the agent is slow: this one is lost, the next may not be
            self.dropped += 1
        except (OSError, ValueError):  # no agent, an agent that left, a path that is none
            self.dropped += 1
            self._retry_ns = now_ns + _RETRY_NS
            self._disconnect()

    def _connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.connect(self._path)

    def _disconnect(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None


class Iteration:
    """Context that Job.iteration() returns; an iteration left by an exception is not reported."""

    def __init__(self, job: Job, bytes: int | None) -> None:
        self._job = job
        self._bytes = bytes
        self._begin_ns = 0

    def __enter__(self) -> Iteration:
        self._begin_ns = time.monotonic_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._job._finish(self._begin_ns, time.monotonic_ns(), self._bytes)


class DdpState:
    """The state that ddp_hook() hands to DDP: the job, and its current iteration's communication.

    Buckets overlap, so the time from the first one's start to the last one's end is counted.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.begin_ns = 0
        self.bytes = 0

    def begin(self, bucket: Any) -> None:
        """A bucket is handed to the all-reduce; the first of a backward pass opens an iteration."""
        if bucket.index() == 0:
            if not self.job._explicit:
                self.job._next(None)
            self.begin_ns = time.monotonic_ns()
            self.bytes = 0
        tensor = bucket.buffer()
        self.bytes += tensor.numel() * tensor.element_size()

    def end(self) -> None:
        """The last bucket's all-reduce is done; those before it were started earlier."""
        self.job.communicated(self.bytes, self.begin_ns, time.monotonic_ns())


def ddp_hook(job: Job) -> tuple[DdpState, Any]:
    """State and function for DistributedDataParallel.register_comm_hook(*ddp_hook(job)).

    The function is PyTorch's own all-reduce, with its buckets counted and timed. Needs torch.
    Unless the loop calls job.iteration() or job.step(), an iteration is counted from the first
    bucket of one backward pass to that of the next.
    """
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def hook(state: DdpState, bucket: Any) -> Any:
        # An error in counting must not reach the training.
        with contextlib.suppress(Exception):
            state.begin(bucket)
        future = allreduce_hook(None, bucket)
        with contextlib.suppress(Exception):
            if bucket.is_last():
                future.add_done_callback(lambda _: state.end())
        return future

    hook.__annotations__.clear()  # DDP takes no other than its own types
    return DdpState(job), hook


def _name_bytes(name: object) -> bytes:
    """The name as the message carries it: printable, at most NAME_BYTES of UTF-8."""
    printable = "".join(each for each in str(name) if each.isprintable())
    cut = printable.encode(errors="ignore")[:NAME_BYTES]
    return cut.decode(errors="ignore").encode()
