# SPDX-License-Identifier: BSD-2-Clause
"""The client: the periodic job itself.

One selector drives all flows. Compute phases are waits until an absolute instant, so that errors of
the clock don't add up; while they last the client still notices a peer that disappears.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.compression import Compressor
from mltcp_tools.lab.emulator.control import Control, StoppedByParent
from mltcp_tools.lab.emulator.flow import ClientFlow, ServerAddress, connect_flows
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.emulator.report import BurstRecord, ClientResult, IterationRecord, TcpSample
from mltcp_tools.lab.emulator.tcpinfo import read_tcp_info
from mltcp_tools.lab.emulator.time_shift import Pace

# epoll counts in milliseconds and rounds up; the last stretch of a wait is left to the clock.
_FINE_S = 0.002
# How often a burst without events looks whether anything moves at all.
_CHECK_S = 0.5

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE


@dataclass(frozen=True)
class ClientOptions:
    """Everything about a run that isn't the job; times in seconds. Raises UsageError.

    `timeout_s`: how long the server may be silent; `trace_s`: the distance of TCP state samples
    (None: no samples).
    """

    host: str
    port: int
    job: str = "job"
    timeout_s: float = 10.0
    trace_s: float | None = None

    def __post_init__(self) -> None:
        for value, what in ((self.timeout_s, "timeout"), (self.trace_s, "distance of samples")):
            if value is not None and not 0.001 <= value <= 86400:
                raise UsageError(f"The {what} must be 1 ms to a day, not {value:g} s.")
        if not 1 <= self.port <= 65535:
            raise UsageError(f"The port must be 1 to 65535, not {self.port}.")


class Client:
    """Runs one job against a server.

    `run` returns normally or raises (MltcpError, KeyboardInterrupt); either way `result` holds what
    was measured until then. `report` is told of each iteration when it is over.
    """

    def __init__(
        self,
        spec: JobSpec,
        options: ClientOptions,
        control: Control | None = None,
        report: Callable[[IterationRecord], None] | None = None,
    ) -> None:
        self._spec = spec
        self._options = options
        self._report = report
        self._control = control
        self._compressor = Compressor(spec.compress)
        self._peer = ServerAddress(options.host, options.port, options.timeout_s)
        self._flows: list[ClientFlow] = []
        self._selector = selectors.DefaultSelector()
        self._where = "before the first iteration"
        parameters = asdict(spec) | asdict(options)
        del parameters["job"]
        self.result = ClientResult(options.job, parameters)

    def run(self) -> None:
        """Connect, run all iterations or those until the parent says stop, disconnect."""
        try:
            self._connect()
            computes = compute_times(self._spec)
            start = self._wait_for_start()
            with suppress(StoppedByParent), self._compressor:
                for iteration in self._iterate(start, computes):
                    self.result.iterations.append(iteration)
                    if self._report is not None:
                        self._report(iteration)
                    if self._control is not None:
                        self._control.iteration(iteration.iteration)
        finally:
            self.result.retransmits = sum(
                read_tcp_info(flow.sock).retransmits + flow.server_retransmits
                for flow in self._flows
            )
            for flow in self._flows:
                flow.sock.close()
            self._selector.close()

    def _connect(self) -> None:
        self._flows, self.result.parameters["cc"] = connect_flows(self._spec, self._peer)
        for flow in self._flows:
            self._selector.register(flow.sock, _READ, flow)
        if self._control is not None:
            self._selector.register(self._control, _READ)

    def _wait_for_start(self) -> float:
        """The instant at which iteration 1 begins (CLOCK_MONOTONIC seconds)."""
        if self._control is None:
            return self._first_start(time.monotonic())
        self._control.connected([flow.sock for flow in self._flows])
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return self._first_start(self._control.read_start())
                self._unexpected(key.data)

    def _first_start(self, common: float) -> float:
        """Return the start of iteration 1, where `common` is the start of all jobs."""
        ready = max(common + self._spec.start_delay_s, time.monotonic())
        time_shifts = self._spec.time_shifts
        return ready if time_shifts is None else time_shifts.first(common, ready)

    def _wait_until(self, instant: float) -> None:
        """Sleep until `instant`, watching the peer and the control descriptor."""
        while (remaining := instant - time.monotonic()) > 0:
            if remaining <= _FINE_S:
                time.sleep(remaining)
                return
            # Whole milliseconds: epoll would round up, beyond the instant.
            for key, _ in self._selector.select(int((remaining - _FINE_S) * 1000) / 1000):
                self._unexpected(key.data)

    def _unexpected(self, flow: ClientFlow | None) -> None:
        """Something is readable while nothing is due: always an end of some kind."""
        if flow is None:
            assert self._control is not None
            self._control.check()
        else:
            with self._peer.errors(self._where):
                flow.unexpected()

    def _iterate(self, start: float, computes: Iterator[float]) -> Iterator[IterationRecord]:
        spec = self._spec
        end = start
        burst_number = 0
        first_due = start + spec.compute_s / spec.bursts
        pace = None if spec.time_shifts is None else Pace(spec.time_shifts, first_due)
        for number, compute_s in enumerate(computes, 1):
            if spec.duration_s is not None and end - start >= spec.duration_s:
                return
            self._where = f"in iteration {number}"
            began = end
            bursts = []
            begin = None
            for burst in range(1, spec.bursts + 1):
                planned = end + compute_s / spec.bursts
                if pace is not None and burst == 1:
                    begin = pace.begin(planned)
                    planned = begin.at_s
                self._wait_until(planned)
                burst_number += 1
                burst_start = time.monotonic()
                shares, cost_s = self._compressor.chosen(spec.shares(burst_number))
                if cost_s:
                    self._wait_until(burst_start + cost_s)
                with self._peer.errors(self._where):
                    first = self._burst(burst_number, number, shares, burst_start)
                end = time.monotonic()
                late_s = burst_start - planned
                bursts.append(BurstRecord(burst, burst_start, end, sum(shares), late_s, first))
            yield IterationRecord(number, began, end, compute_s, tuple(bursts), begin)

    def _burst(self, number: int, iteration: int, shares: list[int], start: float) -> float:
        """Move burst `number` over the flows, until the last one is confirmed; returns when the
        first one was."""
        trace_s = self._options.trace_s
        if trace_s is not None:
            for flow in self._flows:
                flow.mark()
            self._sample(iteration, self._flows)
        for flow, share in zip(self._flows, shares, strict=True):
            flow.begin(number, share, self._spec.direction, start, self._spec.chunk)
            self._watch(flow)
        pending = set(self._flows)
        first = float("inf")
        check = start + _CHECK_S
        sample = start + trace_s if trace_s is not None else float("inf")
        while pending:
            wait = min(sample, check) - time.monotonic()
            for key, mask in self._selector.select(max(0.0, wait)):
                if key.data not in pending:
                    self._unexpected(key.data)
                elif self._move(key.data, mask):
                    pending.discard(key.data)
                    first = min(first, time.monotonic())
                    if trace_s is not None:
                        self._sample(iteration, [key.data])
            now = time.monotonic()
            if trace_s is not None and now >= sample:
                self._sample(iteration, (flow for flow in self._flows if flow in pending))
                sample = max(sample + trace_s, now)
            if now >= check:
                check = now + _CHECK_S
                self._check_progress(pending, now)
        return first

    def _watch(self, flow: ClientFlow) -> None:
        """Wait until the flow can send, while it has something that may go."""
        if flow.outgoing.ready != flow.waits_to_send:
            flow.waits_to_send = flow.outgoing.ready
            self._selector.modify(flow.sock, _READ | (_WRITE * flow.waits_to_send), flow)

    def _move(self, flow: ClientFlow, mask: int) -> bool:
        """Send and receive what can be; True when the flow's part of the burst is confirmed."""
        if mask & _WRITE:
            flow.outgoing.pump(flow.sock)
        done = bool(mask & _READ) and flow.receive()
        self._watch(flow)
        if done:
            flow.finish()
        return done

    def _check_progress(self, flows: Iterable[ClientFlow], now: float) -> None:
        quiet = [flow.progress.stalled_s(now) for flow in flows if flow.progress is not None]
        if quiet and min(quiet) >= self._options.timeout_s:
            raise TimeoutError

    def _sample(self, iteration: int, flows: Iterable[ClientFlow]) -> None:
        for flow in flows:
            info = read_tcp_info(flow.sock)
            self.result.samples.append(
                TcpSample(
                    flow.index,
                    iteration,
                    time.monotonic(),
                    info.cwnd,
                    info.ssthresh,
                    info.rtt_us,
                    info.retransmits,
                    info.bytes_acked - flow.acked_before,
                )
            )
