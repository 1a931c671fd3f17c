"""Keep the sockets of training processes attached: those that are there, and those that come.

A follower matches processes with rules, attaches the sockets they open, learns from hooks and
flows what a job's iterations look like, lets go of processes that end, and closes jobs that end.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import FrameType

from mltcp_tools.attach.board import BOARDS, Board
from mltcp_tools.attach.call_sources import CallSources
from mltcp_tools.attach.followed import Followed
from mltcp_tools.attach.jobs import named_job
from mltcp_tools.attach.messages import Mailbox, Message
from mltcp_tools.attach.processes import Process, process, processes, select
from mltcp_tools.attach.relay import Relay, RelayedIterations, open_iterations
from mltcp_tools.attach.restore import detach
from mltcp_tools.attach.rules import ALL, AUTO, Rule
from mltcp_tools.attach.sockets import CAN_SEND, Socket, sockets_of
from mltcp_tools.attach.switch import DONE, Change, attach
from mltcp_tools.attach.verdict import verdicts, wanted
from mltcp_tools.attach.view import JobView, Views
from mltcp_tools.attach.wakeups import Wakeups, open_wakeups
from mltcp_tools.backends.base import Backend, IterationStream
from mltcp_tools.errors import MltcpError
from mltcp_tools.units import format_bytes, format_seconds

_LOOK_S = 1.0
"""All processes are looked at so often; new ones at every wake-up besides."""
_RETRY_S = 5.0
_YOUNG_S = 3.0
"""A process this young may still become another program (exec), so it is looked at again."""
_DOUBT_S = 60.0
"""A socket that carries no data yet is looked at again, at last so often."""

_Key = tuple[int, int]
"""Pid and start of a process: its name for good."""


@dataclass
class _Watched:
    """A process that a rule fits. job: None until it is known. settled: cookies of its sockets
    that are attached, or can't be; senders: how many of them send more than they receive. doubted:
    cookies of those that are none of ours as they look now, with when to look again and after how
    long."""

    process: Process
    rule: Rule
    job: Followed | None = None
    settled: set[int] = field(default_factory=set)
    senders: int = 0
    doubted: dict[int, tuple[float, float]] = field(default_factory=dict)


class Signals:
    """The signals that came, for a loop that waits on `fileno()`. A context manager."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers = numbers
        self._came: list[int] = []
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._note) for number in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read

    def take(self) -> list[int]:
        """The signals that came since the last call."""
        try:
            os.read(self._read, 1024)
        except BlockingIOError:
            return []
        came, self._came = self._came, []
        return came

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        os.write(self._write, b"\0")


class Follower:
    """Follows the processes of rules. `say` gets a sentence for each thing that happens.

    mailbox: where hooks speak to it, None for none. Use it as a context manager and call `step`
    until it is enough; on leaving, what is attached stays attached.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        backend: Backend,
        say: Callable[[str], None],
        method: str = AUTO,
        mailbox: Mailbox | None = None,
    ) -> None:
        self._rules = tuple(rules)
        self._backend = backend
        self._say = say
        self._method = method
        self._mailbox = mailbox
        self._watched: dict[_Key, _Watched] = {}
        self._seen: dict[int, float] = {}
        """Pids looked at, and until when they are young."""
        self._jobs: dict[str, Followed] = {}
        self._views = Views()
        self._shown: list[JobView] = []
        self._said: dict[str, float] = {}
        self._scans: list[float] = []
        self._look_at = self._retry_at = 0.0
        self._stream: IterationStream | None = None
        self._relay: Relay | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Follower:
        with ExitStack() as stack:
            self._wakeups: Wakeups = stack.enter_context(open_wakeups(self._method, self._say))
            self._board = stack.enter_context(Board(BOARDS))
            self._calls = stack.enter_context(CallSources(self._warn))
            stack.callback(self._close_stream)
            self._selector = stack.enter_context(selectors.DefaultSelector())
            for each in (self._wakeups, self._mailbox):
                if each is not None and each.fileno() >= 0:
                    self._selector.register(each.fileno(), selectors.EVENT_READ, each)
            self._scans = self._wakeups.scan_times(time.monotonic())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait_for(self, fd: int) -> None:
        """Let `step` return as soon as this descriptor is readable."""
        self._selector.register(fd, selectors.EVENT_READ, None)

    def replace_rules(self, rules: Sequence[Rule]) -> None:
        """Follow these from now on; processes that none of them fits any more are detached."""
        self._rules = tuple(rules)
        self._look_at = 0.0

    def jobs(self) -> list[str]:
        """Names of the jobs followed now."""
        return list(self._jobs)

    def step(self) -> None:
        """Wait for something to do, at most a second, and do it."""
        now = time.monotonic()
        due = min([self._look_at, *self._scans])
        ready = [key.data for key, _ in self._selector.select(max(0.0, due - now))]
        now = time.monotonic()
        if self._wakeups in ready:
            self._scans += self._wakeups.scan_times(now)
        if self._mailbox in ready:
            self._hear()
        self._read_events(now)
        self._calls.poll()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            self._look(now)
            self._scan(now)
            self._learn(now)
            self._show()
        elif any(each <= now for each in self._scans):
            self._scans = [each for each in self._scans if each > now]
            self._look_at_new(now)
            self._scan(now)
            if self._wakeups.fileno() < 0:
                self._scans = self._wakeups.scan_times(time.monotonic())

    def _warn(self, sentence: str) -> None:
        """Say what may come again and again: once a minute at most."""
        now = time.monotonic()
        if now >= self._said.get(sentence, 0.0):
            self._said = {each: until for each, until in self._said.items() if until > now}
            self._said[sentence] = now + 60
            self._say(sentence)

    # Processes

    def _look(self, now: float) -> None:
        """Match all processes with the rules, and let go of what has ended."""
        found = processes()
        present = {each.pid for each in found}
        self._seen = {pid: until for pid, until in self._seen.items() if pid in present}
        for each in found:
            self._seen.setdefault(each.pid, now + _YOUNG_S)
        self._match(found)
        alive = {(each.pid, each.start_ticks) for each in found}
        for key in [key for key in self._watched if key not in alive]:
            self._let_go(key)
        for name in [name for name, job in self._jobs.items() if not self._of(job)]:
            self._close(name)

    def _look_at_new(self, now: float) -> None:
        """Match the processes that are new, or so young that they may have become others."""
        if any(rule.target.ports for rule in self._rules):
            self._match(processes())  # any old process may have the port by now
            return
        found = []
        for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
            if now < self._seen.setdefault(pid, now + _YOUNG_S):
                with suppress(MltcpError):  # it has ended by now
                    found.append(process(pid))
        self._match(found)

    def _match(self, found: Iterable[Process]) -> None:
        """Watch those processes that a rule fits; the first one counts."""
        left = {(each.pid, each.start_ticks): each for each in found if each.pid != os.getpid()}
        for rule in self._rules:
            try:
                fitting = select(rule.target, left.values())
            except MltcpError as error:  # such as a namespace that isn't there yet
                self._warn(str(error))
                continue
            for each in fitting:
                del left[(each.pid, each.start_ticks)]
                self._watch(each, rule)
        for key in [key for key in left if key in self._watched]:
            self._watched_no_more(key)

    def _watch(self, found: Process, rule: Rule) -> None:
        key = (found.pid, found.start_ticks)
        watched = self._watched.get(key)
        if watched is not None and watched.rule == rule:
            watched.process = found
            return
        if watched is not None and watched.job is not None:
            watched.job.forget(found.pid)
        self._watched[key] = watched = _Watched(found, rule)
        if rule.job is not None:
            watched.job = self._job(rule.job, rule, found.uid)

    def _watched_no_more(self, key: _Key) -> None:
        """No rule fits the process any more."""
        ports = self._watched[key].rule.target.ports
        if ports and self._watched[key].rule in self._rules:
            return  # a port that it closed doesn't make it another process
        watched = self._watched.pop(key)
        self._calls.forget(key[0])
        if watched.job is not None:
            watched.job.forget(key[0])
        if watched.settled:
            self._detach(f"process {key[0]}", pid=key[0])

    def _let_go(self, key: _Key) -> None:
        """The process has ended."""
        watched = self._watched.pop(key)
        self._calls.forget(key[0])
        if watched.job is not None:
            watched.job.forget(key[0])
            if self._of(watched.job) and watched.settled:
                self._detach(f"process {key[0]}", pid=key[0])

    # Jobs

    def _job(self, name: str, rule: Rule, owner: int) -> Followed | None:
        """The followed job of that name, begun if need be."""
        if name in self._jobs:
            return self._jobs[name]
        try:
            job = named_job(name, self._backend, rule.parameters())
        except MltcpError as error:
            self._warn(f"{name}: {error}")
            return None
        self._jobs[name] = Followed(job, rule, owner)
        return self._jobs[name]

    def _of(self, job: Followed) -> list[_Watched]:
        return [each for each in self._watched.values() if each.job is job]

    def _close(self, name: str) -> None:
        """The job's last process has ended: forget it, and say how it went."""
        job = self._jobs.pop(name)
        view = self._views.of(job.job, 0, job.best(time.monotonic()))
        self._views.forget(job.job.id)
        self._detach(f"job {name}", job=name)
        self._say(f"{name} has ended: {summary(view)}.")

    def _detach(self, what: str, *, job: str | None = None, pid: int | None = None) -> None:
        try:
            done = detach(job=job, pid=pid)
        except MltcpError as error:
            if not str(error).startswith("No "):  # nothing of it was attached
                self._warn(f"{what}: {error}")
            return
        for each in done:
            if each.outcome == "failed":
                self._warn(f"{what}: {each.record.local} is not restored: {each.reason}.")
        restored = sum(each.outcome == "restored" for each in done)
        if restored:
            self._say(f"{what}: {restored} sockets put back.")

    # Sockets

    def _scan(self, now: float) -> None:
        """Attach the sockets that watched processes have opened."""
        watched = {key: each for key, each in self._watched.items() if each.job is not None}
        found, refused = sockets_of([each.process for each in watched.values()])
        for each, reason in refused:
            self._warn(f"Process {each.pid}: {reason}")
        own: dict[_Key, list[Socket]] = {}
        for sock in found:
            own.setdefault((sock.process.pid, sock.process.start_ticks), []).append(sock)
        for key, sockets in own.items():
            self._attach(watched[key], sockets, now)

    def _attach(self, watched: _Watched, sockets: list[Socket], now: float) -> None:
        cookies = {each.cookie for each in sockets}
        watched.settled &= cookies
        watched.senders = sum(
            each.cookie in watched.settled and each.bytes_sent > each.bytes_received
            for each in sockets
        )
        watched.doubted = {c: when for c, when in watched.doubted.items() if c in cookies}
        fresh = {
            each.cookie
            for each in sockets
            if each.state in CAN_SEND
            and each.cookie not in watched.settled
            and now >= watched.doubted.get(each.cookie, (0.0, 0.0))[0]
        }
        job = watched.job
        if not fresh or job is None:
            return
        kinds = watched.rule.kinds
        chosen = wanted(verdicts(watched.process, sockets), kinds, ALL in kinds)
        chosen = [each for each in chosen if each.cookie in fresh]
        for cookie in fresh - {each.cookie for each in chosen}:
            wait = min(_DOUBT_S, 2 * watched.doubted.get(cookie, (0.0, _LOOK_S / 4))[1])
            watched.doubted[cookie] = (now + wait, wait)
        if not chosen:
            return
        try:
            changes = attach(chosen, job.job, watched.rule.congestion_control, self._backend)
        except MltcpError as error:
            self._warn(f"{job.job.name}, process {watched.process.pid}: {error}")
            for each in chosen:
                watched.doubted[each.cookie] = (now + _RETRY_S, _RETRY_S)
            return
        watched.settled |= {each.socket.cookie for each in changes if each.outcome != "gone"}
        self._report(watched, changes)

    def _report(self, watched: _Watched, changes: Sequence[Change]) -> None:
        done = [each for each in changes if each.outcome in DONE]
        if done:
            olds = ", ".join(sorted({each.old for each in done}))
            name = watched.job.job.name if watched.job else ""
            self._say(
                f"{name}: {len(done)} sockets of process {watched.process.pid} attached"
                f" ({olds} -> {done[0].new})."
            )
        for each in changes:
            if each.outcome == "failed":
                self._say(f"{each.job}: {each.socket.remote} is not attached: {each.reason}.")

    # What is known of the jobs

    def _hear(self) -> None:
        assert self._mailbox is not None
        by_pid = {key[0]: each for key, each in self._watched.items()}
        for message in self._mailbox.receive():
            watched = by_pid.get(message.pid)
            if watched is None:
                continue  # nobody's rule fits it, whatever it says
            if watched.job is None and message.job:
                self._name(watched, message)
            if watched.job is not None:
                watched.job.hear(message)

    def _name(self, watched: _Watched, message: Message) -> None:
        """A process whose rule leaves that to it tells its job's name."""
        job = self._job(message.job, watched.rule, watched.process.uid)
        if job is not None and (job.owner, job.rule) != (watched.process.uid, watched.rule):
            self._warn(
                f"Process {message.pid} of uid {message.uid} calls itself {message.job}, which is"
                f" a job of uid {job.owner} or of another rule; it is left alone."
            )
            return
        watched.job = job

    def _read_events(self, now: float) -> None:
        """Take what the kernel reports; open its stream again where that broke."""
        if self._stream is None and now >= self._retry_at:
            self._retry_at = now + _RETRY_S
            self._open_stream()
        if self._stream is None:
            return
        try:
            events = self._stream.poll(0)
        except MltcpError as error:
            self._warn(f"Iterations are no longer seen: {error}")
            self._close_stream()
            return
        self._views.add(events)
        if self._relay is not None:
            self._relay.send(events)
        by_id = {job.job.id: job for job in self._jobs.values()}
        for event in events:
            if event.job_id in by_id:
                by_id[event.job_id].see([event])

    def _open_stream(self) -> None:
        try:
            self._stream = open_iterations(self._backend)
            if not isinstance(self._stream, RelayedIterations):
                self._relay = Relay().__enter__()
        except (MltcpError, OSError) as error:
            self._warn(f"Iterations can't be seen: {error}")

    def _close_stream(self) -> None:
        if self._relay is not None:
            self._relay.__exit__()
        if self._stream is not None:
            self._stream.close()
        self._stream = self._relay = None

    def _learn(self, now: float) -> None:
        for job in self._jobs.values():
            own = self._of(job)
            for each in own:
                self._calls.watch(each.process.pid, now)
            for known, heard_s in self._calls.metadata(
                (each.process.pid, each.senders) for each in own
            ):
                job.tell(known, heard_s)
            changed = job.learn(now)
            if changed is None or not any(each.settled for each in self._of(job)):
                continue
            try:
                self._backend.set_job(changed)
            except MltcpError as error:
                self._warn(f"{changed.name}: {error}")
                continue
            best = job.best(now)
            total = changed.params.total_bytes
            self._say(
                f"{changed.name}: {format_bytes(total) if total else 'unknown bytes'} per burst of"
                f" a flow, gap {format_seconds(changed.params.gap_s)}"
                + (f" (period {format_seconds(best.period_s)}, {best.source})." if best else ".")
            )

    def _show(self) -> None:
        now = time.monotonic()
        followed = {job.job.id: job for job in self._jobs.values()}
        try:
            flows = [flow.job_id for flow in self._backend.flows()]
            jobs = {job.id: job for job in self._backend.jobs()}
        except MltcpError as error:
            self._warn(str(error))
            return
        self._board.write(
            [
                self._views.of(
                    job,
                    flows.count(job.id),
                    followed[job.id].best(now) if job.id in followed else None,
                )
                for job in jobs.values()
            ]
        )


def summary(view: JobView) -> str:
    """How a job went, in a few words."""
    if view.iteration_s is None or view.first_s is None or view.best_s is None:
        return "no iterations were seen"
    return (
        f"{view.iterations} iterations, {format_seconds(view.first_s)} each at first,"
        f" {format_seconds(view.iteration_s)} at last, {format_seconds(view.best_s)} at best"
    )


def follow(
    rule: Rule,
    backend: Backend,
    say: Callable[[str], None],
    *,
    method: str = AUTO,
    until_ended: bool = True,
) -> None:
    """Follow the processes of one rule until SIGINT or SIGTERM, or until the last has ended.

    What is attached stays attached. Raises HostError where the tracepoint is asked for by name
    and can't be had.
    """
    with (
        Signals(signal.SIGINT, signal.SIGTERM) as signals,
        Follower([rule], backend, say, method) as follower,
    ):
        follower.wait_for(signals.fileno())
        begun = False
        while not signals.take():
            follower.step()
            begun = begun or bool(follower.jobs())
            if until_ended and begun and not follower.jobs():
                return
