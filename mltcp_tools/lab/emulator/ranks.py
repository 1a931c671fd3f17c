# SPDX-License-Identifier: BSD-2-Clause
"""One rank of a job with a pattern: it computes, sends to others, and waits for what they send.

Every rank has the same list of tasks (patterns.py) and does its own. A connection carries
messages one way, from the rank that opened it:

    Opening            once: which of the job's connections it is
    MessageHeader, payload    per message: which task of which iteration; the header is counted

One selector drives all connections. A task begins when the last one before it is done, so a step of
a ring waits for the one before, as it does in NCCL and Gloo.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from mltcp_tools.base.errors import HostError, MltcpError, UsageError
from mltcp_tools.lab.emulator.control import Control, StoppedByParent
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.emulator.patterns import RankTask, connections, sizes
from mltcp_tools.lab.emulator.report import BurstRecord, ClientResult, IterationRecord, TcpSample
from mltcp_tools.lab.emulator.sockets import prepare_socket, set_congestion_control
from mltcp_tools.lab.emulator.stream import Incoming, Outgoing, PeerClosed
from mltcp_tools.lab.emulator.tcpinfo import read_tcp_info

_OPENING = struct.Struct("!8sI")  # magic, number of the connection
_HEADER = struct.Struct("!4sIII")  # magic, iteration (from 0), task, size with the header
_OPENING_MAGIC = b"MLTCPrnk"
_HEADER_MAGIC = b"MLms"
_TIMEOUT_S = 10.0
# epoll counts in milliseconds and rounds up; the last stretch of a wait is left to the clock.
_FINE_S = 0.002


@dataclass(frozen=True)
class Assignment:
    """A rank's part (control.py): the job, which of its ranks it is, the port that it
    listens on, and of each connection that begins at it, by its number, the address here, that of
    the peer, and the peer's port.
    """

    name: str
    spec: JobSpec
    trace_s: float | None
    rank: int
    port: int
    routes: dict[int, tuple[str, str, int]]

    @classmethod
    def read(cls, message: dict[str, Any]) -> Assignment:
        """From a message's fields. Raises UsageError."""
        try:
            routes = {
                int(number): (str(each["source"]), str(each["destination"]), int(each["port"]))
                for number, each in message["routes"].items()
            }
            spec, trace_s = JobSpec.read(message["spec"]), message["trace_s"]
            rank, port = int(message["rank"]), int(message["port"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"Not a possible rank: {error!r} in what the parent sent.") from error
        if spec.pattern is None or not 0 <= rank < spec.pattern.ranks:
            raise UsageError(f"Not a possible rank: number {rank} of {spec.pattern}.")
        return cls(str(message["name"]), spec, trace_s, rank, port, routes)


class _Sending:
    """A connection that begins here. handed_over: bytes given to the kernel for messages."""

    def __init__(self, number: int, sock: socket.socket) -> None:
        self.number = number
        self.sock = sock
        self.queue: deque[Outgoing] = deque()
        self.handed_over = 0
        self.acked_first = self.acked_before = 0
        self.watched = False

    def pump(self) -> bool:
        """Hand over what the kernel takes; True when nothing is left."""
        while self.queue and self.queue[0].pump(self.sock):
            self.queue.popleft()
        return not self.queue


class _Receiving:
    """A connection that ends here, once its opening has come. due: messages yet to come."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.number: int | None = None
        self.incoming = Incoming(record=_OPENING.size)
        self.header: tuple[int, int] | None = None
        self.due = 0


class _Iteration:
    """The rank's state in one iteration, which it may not have begun itself."""

    def __init__(self, tasks: tuple[RankTask, ...], rank: int) -> None:
        # One more than the tasks before: the rank's own beginning.
        self.waiting = {n: len(t.after) + 1 for n, t in enumerate(tasks) if t.rank == rank}
        self.left = sum(task.ends_at == rank for task in tasks)
        self.first_s: float | None = None
        self.first_end_s: float | None = None
        self.late_s = 0.0


class RankClient:
    """Runs one rank; `run` returns normally or raises, and `result` holds what was measured."""

    def __init__(self, assignment: Assignment, control: Control) -> None:
        spec = assignment.spec
        assert spec.pattern is not None
        self._assignment = assignment
        self._control = control
        self._rank = assignment.rank
        self._tasks = spec.pattern.tasks(spec.bytes_per_iteration, spec.flows)
        self._connections = connections(self._tasks)
        self._own_bytes = sum(
            size
            for size, (rank, _, _) in zip(sizes(self._tasks), self._connections, strict=True)
            if rank == self._rank
        )
        self._behind: dict[int, list[int]] = {}
        for number, task in enumerate(self._tasks):
            for before in task.after:
                self._behind.setdefault(before, []).append(number)
        self._computes = list(compute_times(spec))
        self._iterations: dict[int, _Iteration] = {}
        self._present = -1  # the iteration that the rank is in
        self._began_s = 0.0
        self._computing: tuple[float, int] | None = None  # until when, for which task
        self._sending: dict[int, _Sending] = {}
        self._receiving: list[_Receiving] = []
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._sample_s = float("inf")
        parameters = asdict(spec) | {"rank": self._rank, "trace_s": assignment.trace_s}
        self.result = ClientResult(assignment.name, parameters)

    def run(self) -> None:
        """Listen, connect when the parent says so, run all iterations."""
        try:
            self._listen()
            self._connect()
            with suppress(StoppedByParent):
                self._iterate()
        finally:
            self.result.retransmits = sum(
                read_tcp_info(each.sock).retransmits for each in self._sending.values()
            )
            for sock in (*(s.sock for s in self._sending.values()), *self._incoming_socks()):
                sock.close()
            if self._listener is not None:
                self._listener.close()
            self._selector.close()

    def _incoming_socks(self) -> Iterator[socket.socket]:
        return (each.sock for each in self._receiving)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (PeerClosed, OSError) as error:
            reason = str(error) if isinstance(error, PeerClosed) else error.strerror
            raise MltcpError(
                f"Rank {self._rank} lost its connection {what} ({reason}); see whether the other"
                " ranks still run."
            ) from error

    def _listen(self) -> None:
        try:
            self._listener = socket.create_server(("", self._assignment.port), backlog=1024)
        except OSError as error:
            raise HostError(
                f"Rank {self._rank} can't listen on port {self._assignment.port}"
                f" ({error.strerror}); stop what listens there."
            ) from error
        self._control.listening(self._assignment.port)
        self._control.read_connect()

    def _connect(self) -> None:
        """Open this rank's connections, take the others', and wait for the start."""
        spec = self._assignment.spec
        for number, (source, destination, port) in sorted(self._assignment.routes.items()):
            _, to, _ = self._connections[number]
            with self._errors(f"to rank {to}"):
                sock = socket.socket()
                self._sending[number] = _Sending(number, sock)
                prepare_socket(sock, _TIMEOUT_S)
                if spec.cc is not None:
                    set_congestion_control(sock, spec.cc)
                sock.bind((source, 0))
                sock.settimeout(_TIMEOUT_S)
                sock.connect((destination, port))
                sock.sendall(_OPENING.pack(_OPENING_MAGIC, number))
                sock.setblocking(False)
        self._take_connections()
        for each in self._sending.values():
            each.acked_first = each.acked_before = read_tcp_info(each.sock).bytes_acked
        self._selector.register(self._control, selectors.EVENT_READ)
        self._control.connected([each.sock for each in self._sending.values()])

    def _take_connections(self) -> None:
        """Accept the connections that end here, each with its opening."""
        assert self._listener is not None
        due = {n for n, (_, to, _) in enumerate(self._connections) if to == self._rank}
        per_iteration = dict.fromkeys(due, 0)
        for task in self._tasks:
            if task.to == self._rank:
                per_iteration[self._connections.index((task.rank, task.to, task.flow))] += 1
        self._listener.settimeout(_TIMEOUT_S)
        with self._errors("from another rank"):
            while due:
                sock, _ = self._listener.accept()
                each = _Receiving(sock)
                self._receiving.append(each)
                prepare_socket(sock, _TIMEOUT_S)
                sock.settimeout(_TIMEOUT_S)
                while not each.incoming.pump(sock):
                    pass
                magic, number = _OPENING.unpack(each.incoming.record)
                if magic != _OPENING_MAGIC or number not in due:
                    raise MltcpError(f"Rank {self._rank} got a connection from another program.")
                due.discard(number)
                each.number = number
                each.due = per_iteration[number] * len(self._computes)
                each.incoming = Incoming(record=_HEADER.size)
                sock.setblocking(False)
                self._selector.register(sock, selectors.EVENT_READ, each)

    def _iterate(self) -> None:
        start = max(self._wait_for_start(), time.monotonic())
        self._began_s = start
        if self._assignment.trace_s is not None:
            self._sample_s = start
        self._begin(0)
        while self._present < len(self._computes) or any(s.queue for s in self._sending.values()):
            self._serve()

    def _wait_for_start(self) -> float:
        at = self._control.read_start() + self._assignment.spec.start_delay_s
        while (remaining := at - time.monotonic()) > 0:
            # A peer may begin a moment earlier, and its messages wait in the kernel.
            time.sleep(min(remaining, 0.1))
        return at

    def _serve(self) -> None:
        """Do what is due, and wait for what comes next."""
        now = time.monotonic()
        if self._computing is not None and now >= self._computing[0]:
            until, task = self._computing
            self._computing = None
            state = self._state(self._present)
            state.late_s = max(state.late_s, now - until)
            self._done(self._present, task, until)
            return
        if now >= self._sample_s:
            self._sample(now)
        due = min(self._sample_s, self._computing[0] if self._computing else float("inf"))
        wait = None if due == float("inf") else due - now
        if wait is not None and 0 < wait <= _FINE_S and not self._watched():
            time.sleep(wait)
            wait = 0.0
        # Whole milliseconds: epoll would round up, beyond the instant.
        for key, mask in self._selector.select(None if wait is None else int(wait * 1000) / 1000):
            if key.data is None:
                self._control.check()
            elif isinstance(key.data, _Sending):
                self._pump(key.data)
            elif mask & selectors.EVENT_READ:
                self._receive(key.data)

    def _watched(self) -> bool:
        """Return whether the kernel has yet to take something: then the last stretch isn't
        slept.
        """
        return any(each.watched for each in self._sending.values())

    def _state(self, iteration: int) -> _Iteration:
        if iteration not in self._iterations:
            self._iterations[iteration] = _Iteration(self._tasks, self._rank)
        return self._iterations[iteration]

    def _begin(self, iteration: int) -> None:
        self._present = iteration
        if iteration == len(self._computes):
            return
        for each in self._sending.values():
            each.acked_before = each.acked_first + each.handed_over
        state = self._state(iteration)
        for number in list(state.waiting):
            self._release(iteration, number, self._began_s)
        if not state.left:
            self._finish(iteration)

    def _release(self, iteration: int, number: int, now: float) -> None:
        """One thing fewer that a task waits for; with the last one, it begins."""
        state, task = self._state(iteration), self._tasks[number]
        state.waiting[number] -= 1
        if state.waiting[number]:
            return
        if task.to is None:
            self._computing = (now + task.share * self._computes[iteration], number)
            return
        if state.first_s is None:
            state.first_s = time.monotonic()
        connection = self._connections.index((task.rank, task.to, task.flow))
        each = self._sending[connection]
        header = _HEADER.pack(_HEADER_MAGIC, iteration, number, task.size)
        each.queue.append(Outgoing(header, task.size - _HEADER.size))
        each.handed_over += task.size
        self._pump(each)

    def _pump(self, each: _Sending) -> None:
        _, to, _ = self._connections[each.number]
        with self._errors(f"to rank {to}"):
            done = each.pump()
        if done and each.watched:
            self._selector.unregister(each.sock)
        elif not done and not each.watched:
            self._selector.register(each.sock, selectors.EVENT_WRITE, each)
        each.watched = not done

    def _receive(self, each: _Receiving) -> None:
        assert each.number is not None
        try:
            with self._errors(f"from rank {self._connections[each.number][0]}"):
                while each.incoming.pump(each.sock):
                    self._came(each)
        except MltcpError:
            # A rank that has sent everything may be gone.
            if each.due:
                raise
            self._selector.unregister(each.sock)

    def _came(self, each: _Receiving) -> None:
        """A header or a payload is complete."""
        if each.header is None:
            magic, iteration, task, size = _HEADER.unpack(each.incoming.record)
            right = magic == _HEADER_MAGIC and each.due and size >= _HEADER.size
            if not right or task >= len(self._tasks) or self._tasks[task].size != size:
                raise MltcpError(f"Rank {self._rank} got a message that none of its peers sends.")
            each.header = (iteration, task)
            each.incoming = Incoming(size - _HEADER.size)
        if each.incoming.done and each.header is not None:
            iteration, task = each.header
            each.header = None
            each.due -= 1
            each.incoming = Incoming(record=_HEADER.size)
            now = time.monotonic()
            state = self._state(iteration)
            if state.first_end_s is None:
                state.first_end_s = now
            self._done(iteration, task, now)

    def _done(self, iteration: int, number: int, now: float) -> None:
        """A task is over that ends here. now: when; computing begins then that waits for it."""
        state = self._state(iteration)
        state.left -= 1
        for behind in self._behind.get(number, ()):
            self._release(iteration, behind, now)
        if not state.left and iteration == self._present:
            self._finish(iteration)

    def _finish(self, iteration: int) -> None:
        state, end = self._iterations.pop(iteration), time.monotonic()
        first = end if state.first_s is None else state.first_s
        first_end = end if state.first_end_s is None else state.first_end_s
        burst = BurstRecord(1, first, end, self._own_bytes, state.late_s, first_end)
        compute_s = self._computes[iteration]
        self.result.iterations.append(
            IterationRecord(iteration + 1, self._began_s, end, compute_s, (burst,))
        )
        self._control.iteration(iteration + 1)
        self._began_s = end
        self._begin(iteration + 1)

    def _sample(self, now: float) -> None:
        """The state of the connections that have something on the way."""
        assert self._assignment.trace_s is not None
        for each in self._sending.values():
            info = read_tcp_info(each.sock)
            if info.bytes_acked < each.acked_first + each.handed_over:
                acked = max(0, info.bytes_acked - each.acked_before)
                self.result.samples.append(
                    TcpSample(
                        each.number,
                        self._present + 1,
                        now,
                        info.cwnd,
                        info.ssthresh,
                        info.rtt_us,
                        info.retransmits,
                        acked,
                    )
                )
        self._sample_s = max(self._sample_s + self._assignment.trace_s, now)
