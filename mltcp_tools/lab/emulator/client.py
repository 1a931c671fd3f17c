# SPDX-License-Identifier: BSD-2-Clause
"""The client: the periodic job itself.

One selector drives all flows. Compute phases are waits until an absolute instant, so that errors of
the clock don't add up; while they last the client still notices a peer that disappears.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TextIO

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.compression import Compressor
from mltcp_tools.lab.emulator.control import Control, Stopped
from mltcp_tools.lab.emulator.flow import Flow, Peer, connect_flows
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.emulator.report import (
    Burst,
    Counters,
    IntervalReporter,
    Iteration,
    Result,
    Sample,
)
from mltcp_tools.lab.emulator.tcpinfo import read_tcp_info
from mltcp_tools.lab.emulator.time_shift import Pace

# epoll counts in milliseconds and rounds up; the last stretch of a wait is left to the clock.
_FINE_S = 0.002
# How often a job of limited rate hands over what has become due.
_PIECE_S = 0.001
# How often a burst without events looks whether anything moves at all.
_CHECK_S = 0.5

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE


@dataclass(frozen=True)
class ClientOptions:
    """Everything about a run that isn't the job; times in seconds. Raises UsageError.

    `timeout_s`: how long the server may be silent; `trace_s`: the distance of TCP state samples
    (None: no samples); `interval_s`: that of the interval lines.
    """

    host: str
    port: int
    job: str = "job"
    timeout_s: float = 10.0
    trace_s: float | None = None
    interval_s: float = 1.0

    def __post_init__(self) -> None:
        for value, what in (
            (self.timeout_s, "timeout"),
            (self.interval_s, "interval"),
            (self.trace_s, "distance of samples"),
        ):
            if value is not None and not 0.001 <= value <= 86400:
                raise UsageError(f"The {what} must be 1 ms to a day, not {value:g} s.")
        if not 1 <= self.port <= 65535:
            raise UsageError(f"The port must be 1 to 65535, not {self.port}.")


class Client:
    """Runs one job against a server.

    `run` returns normally or raises (MltcpError, KeyboardInterrupt); either way `result` holds what
    was measured until then. Interval lines go to `out` unless it is None.
    """

    def __init__(
        self,
        spec: JobSpec,
        options: ClientOptions,
        out: TextIO | None = None,
        control: Control | None = None,
    ) -> None:
        self._spec = spec
        self._options = options
        self._out = out
        self._control = control
        self._compressor = Compressor(spec.compress)
        self._peer = Peer(options.host, options.port, options.timeout_s)
        self._flows: list[Flow] = []
        self._selector = selectors.DefaultSelector()
        self._reporter: IntervalReporter | None = None
        self._where = "before the first iteration"
        parameters = asdict(spec) | asdict(options)
        del parameters["job"], parameters["interval_s"]
        self.result = Result(options.job, parameters)

    def run(self) -> None:
        """Connect, run all iterations or those until the parent says stop, disconnect."""
        try:
            self._connect()
            computes = compute_times(self._spec)
            start = self._wait_for_start()
            if self._out is not None:
                self._reporter = IntervalReporter(
                    self._out, self._options.interval_s, start, self._counters
                )
            with suppress(Stopped), self._compressor:
                for iteration in self._iterate(start, computes):
                    self.result.iterations.append(iteration)
                    if self._reporter is not None:
                        self._reporter.finished(iteration)
                    if self._control is not None:
                        self._control.iteration(iteration.iteration)
        finally:
            if self._flows:
                self.result.retransmits = self._counters().retransmits
            if self._reporter is not None:
                self._reporter.close(time.monotonic())
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
            wake = remaining - _FINE_S
            if self._reporter is not None:
                wake = min(wake, max(0.0, self._reporter.due - time.monotonic()))
            # Whole milliseconds: epoll would round up, beyond the instant.
            for key, _ in self._selector.select(int(wake * 1000) / 1000):
                self._unexpected(key.data)
            self._tick()

    def _unexpected(self, flow: Flow | None) -> None:
        """Something is readable while nothing is due: always an end of some kind."""
        if flow is None:
            assert self._control is not None
            self._control.check()
        else:
            with self._peer.errors(self._where):
                flow.unexpected()

    def _tick(self) -> None:
        if self._reporter is not None:
            self._reporter.tick(time.monotonic())

    def _iterate(self, start: float, computes: Iterator[float]) -> Iterator[Iteration]:
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
                bursts.append(Burst(burst, burst_start, end, sum(shares), late_s, first))
            yield Iteration(number, began, end, compute_s, tuple(bursts), begin)

    def _burst(self, number: int, iteration: int, shares: list[int], start: float) -> float:
        """Move burst `number` over the flows that have a share of it, until the last one is
        confirmed; returns when the first one was."""
        trace_s, limit_s = self._options.trace_s, self._seconds_at_rate(shares)
        carrying = [flow for flow, share in zip(self._flows, shares, strict=True) if share]
        if trace_s is not None:
            for flow in carrying:
                flow.mark()
            self._sample(iteration, carrying)
        for flow in carrying:
            share = shares[flow.index]
            chunk, limited = self._spec.chunk, limit_s is not None
            flow.begin(number, share, self._spec.direction, start, chunk=chunk, limited=limited)
            self._watch(flow)
        pending = set(carrying)
        first = float("inf")
        check = start + _CHECK_S
        sample = start + trace_s if trace_s is not None else float("inf")
        piece = start + _PIECE_S if limit_s is not None else float("inf")
        while pending:
            wake = min(sample, check, piece, self._reporter.due if self._reporter else check)
            for key, mask in self._selector.select(max(0.0, wake - time.monotonic())):
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
            if limit_s is not None and now >= piece:
                piece = now + _PIECE_S if now < start + limit_s else float("inf")
                for flow in pending:
                    flow.allow_share((now - start) / limit_s)
                    flow.outgoing.pump(flow.sock)
                    self._watch(flow)
            if now >= check:
                check = now + _CHECK_S
                self._check_progress(pending, now)
            self._tick()
        return first

    def _seconds_at_rate(self, shares: list[int]) -> float | None:
        """Return the seconds that handing a burst over takes at the job's rate; None where it has
        none.
        """
        rate = self._spec.rate_bps
        return None if rate is None else sum(shares) * 8 / rate

    def _watch(self, flow: Flow) -> None:
        """Wait until the flow can send, while it has something that may go."""
        if flow.outgoing.ready != flow.waits_to_send:
            flow.waits_to_send = flow.outgoing.ready
            self._selector.modify(flow.sock, _READ | (_WRITE * flow.waits_to_send), flow)

    def _move(self, flow: Flow, mask: int) -> bool:
        """Send and receive what can be; True when the flow's part of the burst is confirmed."""
        if mask & _WRITE:
            flow.outgoing.pump(flow.sock)
        done = bool(mask & _READ) and flow.receive()
        self._watch(flow)
        if done:
            flow.finish()
        return done

    def _check_progress(self, flows: Iterable[Flow], now: float) -> None:
        quiet = [flow.progress.stalled_s(now) for flow in flows if flow.progress is not None]
        if quiet and min(quiet) >= self._options.timeout_s:
            raise TimeoutError

    def _sample(self, iteration: int, flows: Iterable[Flow]) -> None:
        for flow in flows:
            info = read_tcp_info(flow.sock)
            self.result.samples.append(
                Sample(
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

    def _counters(self) -> Counters:
        infos = [read_tcp_info(flow.sock) for flow in self._flows]
        receiving = self._spec.direction == "receive"
        return Counters(
            sum(i.bytes_received if receiving else i.bytes_acked for i in infos),
            sum(i.retransmits for i in infos) + sum(f.server_retransmits for f in self._flows),
        )
