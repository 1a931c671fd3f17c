"""Keep the sockets of training processes attached: those that are there, and those that come.

A follower matches processes with rules, attaches the sockets they open, hears what their hooks say,
lets go of processes that end, and closes jobs that end.
"""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from mltcp_tools.agent.attaching import attach_new, forget_closed, have_new
from mltcp_tools.agent.followed import Followed
from mltcp_tools.agent.learning import Learning
from mltcp_tools.agent.notices import Notices
from mltcp_tools.agent.rules import AUTO, Rule
from mltcp_tools.agent.taken import notice_taken
from mltcp_tools.agent.wakeups import Wakeups, open_wakeups
from mltcp_tools.agent.watchlist import Watched, Watchlist
from mltcp_tools.attach.jobs import named_job
from mltcp_tools.attach.restore import detach
from mltcp_tools.backends.base import Backend, Flow, Job
from mltcp_tools.errors import MltcpError, UsageError
from mltcp_tools.host.leases import leased
from mltcp_tools.host.signals import Signals
from mltcp_tools.sources.messages import Mailbox, Message
from mltcp_tools.units import counted

_HEARD_MOST = 10_000
"""Datagrams between two looks; a thousand processes at ten iterations a second send as many, and
who floods the agent shall not keep it from its work."""

_TIDY_S = 60.0
_LOOK_S = 1.0
"""All processes are looked at so often; new ones at every wake-up besides."""


class Follower:
    """Follows the processes of rules. `say` gets a sentence for each thing that happens.

    method: how new connections are noticed (rules.METHODS). mailbox: where hooks speak to it, None
    for none. linger_s: how long a job without a process is waited for, as where each iteration is a
    process of its own. Use it as a context manager, and call `step` until it is enough; on leaving,
    what is attached stays attached.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        backend: Backend,
        say: Callable[[str], None],
        method: str = AUTO,
        mailbox: Mailbox | None = None,
        linger_s: float = 0.0,
    ) -> None:
        self._backend = backend
        self._linger_s = linger_s
        self._empty_s: dict[str, float] = {}
        """Since when a job has had no process, by name."""
        self._notices = Notices(say)
        self._method = method
        self._mailbox = mailbox
        self._watchlist = Watchlist(rules, self._notices.warn)
        self._jobs: dict[str, Followed] = {}
        self._learning = Learning(self._jobs, backend, self._notices)
        self._look_at = self._tidy_at = 0.0
        self._scans: list[float] = []
        self._heard_before = 0
        self._stack = ExitStack()

    def __enter__(self) -> Follower:
        with ExitStack() as stack:
            self._wakeups: Wakeups = stack.enter_context(
                open_wakeups(self._method, self._notices.say)
            )
            stack.enter_context(self._learning)
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

    def tell_flows(self, heeds: Callable[[Sequence[Job], Sequence[Flow]], None]) -> None:
        """Let somebody else know of the jobs and flows that there are, about once a second."""
        self._learning.heeds = heeds

    def replace_rules(self, rules: Sequence[Rule]) -> None:
        """Follow these from now on; processes that none of them fits any more are detached."""
        self._watchlist.rules = tuple(rules)
        self._look_at = 0.0

    @property
    def watched(self) -> list[Watched]:
        """The processes that a rule fits."""
        return list(self._watchlist)

    def jobs(self) -> list[str]:
        """Names of the jobs followed now."""
        return list(self._jobs)

    def step(self) -> None:
        """Wait for something to do, at most a second, and do it."""
        due = min([self._look_at, *self._scans])
        ready = self._selector.select(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        for key, _ in ready:
            if key.data is self._wakeups:
                self._scans += self._wakeups.scan_times(now)
            elif key.data is not None:  # else only to be noticed, as with `wait_for`
                self._hear()
        self._learning.read(now)
        if now >= self._look_at:
            self._wakeups.rearm()
            self._look_at = now + _LOOK_S
            self._listen()
            self._update(self._watchlist.look(now), now, thorough=True)
            self._learning.tell(self._watchlist.of, now)
            self._notice_taken(self._learning.show(now))
        elif any(each <= now for each in self._scans):
            self._wakeups.rearm()
            self._update(self._watchlist.look_at_new(now), now, thorough=False)
        else:
            return
        self._scans = [each for each in self._scans if each > now]
        if self._wakeups.fileno() < 0:
            self._scans = self._wakeups.scan_times(time.monotonic())

    # Processes and their sockets

    def _update(self, dropped: Sequence[Watched], now: float, thorough: bool) -> None:
        """Let go of what is watched no more, find the others' jobs, and attach what is new."""
        for watched in dropped:
            self._let_go(watched)
        if any(each.attached and not each.process.is_running() for each in dropped):
            self._forget_closed()
        alive = {id(each.job) for each in dropped if each.process.is_running()}
        for name, job in [*self._jobs.items()]:
            if self._watchlist.of(job):
                self._empty_s.pop(name, None)
            elif id(job) in alive or now - self._empty_s.setdefault(name, now) >= self._linger_s:
                self._close(name, ended=id(job) not in alive)
        for watched in self._watchlist:
            if watched.job is None and watched.rule.job is not None:
                watched.job = self._job(watched.rule.job, watched)
        known = [each for each in self._watchlist if each.job is not None]
        attach_new(known if thorough else have_new(known), self._backend, self._notices, now)
        if now >= self._tidy_at and any(each.closed for each in known):
            self._tidy_at = now + _TIDY_S
            self._forget_closed()
            for each in known:
                each.closed = False

    def _notice_taken(self, tags: dict[int, int]) -> None:
        try:
            notice_taken(self._watchlist, tags, self._notices)
        except (MltcpError, OSError) as error:
            self._notices.warn(str(error))

    def _forget_closed(self) -> None:
        try:
            forget_closed()
        except (MltcpError, OSError) as error:
            self._notices.warn(str(error))

    def _let_go(self, watched: Watched) -> None:
        """The process has ended, or no rule fits it any more, or another one than before."""
        self._learning.forget(watched.process.pid)
        if watched.job is None:
            return
        watched.job.forget(watched.process.pid)
        # What a process that ended shared with others is theirs still.
        if watched.attached and watched.process.is_running():
            self._detach(f"process {watched.process.pid}", pid=watched.process.pid)

    def _detach(self, what: str, *, job: str | None = None, pid: int | None = None) -> None:
        try:
            done = detach(job=job, pid=pid)
        except UsageError:  # nothing of it is attached any more
            return
        except MltcpError as error:
            self._notices.warn(f"{what}: {error}")
            return
        for each in done:
            if each.outcome == "failed":
                self._notices.say(f"{what}: {each.record.local} is not restored: {each.reason}.")
        if restored := sum(each.outcome == "restored" for each in done):
            self._notices.say(f"{what}: {counted(restored, 'connection')} restored.")

    # Jobs

    def _job(self, name: str, watched: Watched) -> Followed | None:
        """The followed job of that name, begun if need be; None where it can't be begun."""
        if name not in self._jobs:
            try:
                # The others' are in the kernel when their first connection is attached.
                others = [each.job.id for each in self._jobs.values()]
                given = watched.rule.parameters()
                job = named_job(name, self._backend, given, promised=others)
            except MltcpError as error:
                self._notices.warn(f"{name}: {error}")
                return None
            self._jobs[name] = Followed(job, watched.rule, watched.process.uid)
        return self._jobs[name]

    def _close(self, name: str, ended: bool) -> None:
        """No process of the job is followed any more: forget it, and say how it went.

        ended: the last one has ended; else no rule fits it any more.
        """
        job = self._jobs.pop(name)
        self._empty_s.pop(name, None)
        how = self._learning.end(job, time.monotonic())
        self._detach(f"job {name}", job=name)
        why = "has ended" if ended else "is no longer followed: no rule matches its processes"
        self._notices.say(f"{name} {why}: {how}.")

    # Their hooks

    def _hear(self) -> None:
        assert self._mailbox is not None
        by_pid = {each.process.pid: each for each in self._watchlist}
        for message in self._mailbox.receive():
            watched = by_pid.get(message.pid)
            if watched is None:
                continue  # no rule fits it, whatever it says
            if watched.job is None and watched.rule.job is None and message.job:
                self._name(watched, message)
            if watched.job is not None:
                watched.job.hear(message)

        if self._mailbox.received - self._heard_before > _HEARD_MOST:
            self._selector.unregister(self._mailbox.fileno())
            self._notices.warn("Some messages of training loops are lost: too many arrive at once.")

    def _listen(self) -> None:
        """Hear the mailbox again, if it was too much."""
        if self._mailbox is not None:
            self._heard_before = self._mailbox.received
            if self._mailbox.fileno() not in self._selector.get_map():
                self._selector.register(self._mailbox.fileno(), selectors.EVENT_READ, self._mailbox)

    def _name(self, watched: Watched, message: Message) -> None:
        """A process whose rule leaves that to it tells its job's name."""
        job = self._job(message.job, watched)
        if job is None:
            return
        if (job.owner, job.rule) == (watched.process.uid, watched.rule):
            watched.job = job
        else:
            self._notices.warn(
                f"Process {message.pid} of uid {watched.process.uid} calls itself {message.job},"
                " but that is another user's job, or another rule's; it is left alone."
            )


def follow(rule: Rule, backend: Backend, say: Callable[[str], None], method: str = AUTO) -> None:
    """Follow the processes of one rule until the last has ended, or SIGINT or SIGTERM.

    Without a process that fits it waits for one. What is attached stays attached when a signal ends
    it. Raises HostError where the tracepoint is asked for by name and isn't available.
    """
    with (
        leased("mltcp attach --follow", backend.name),
        Signals(signal.SIGINT, signal.SIGTERM) as signals,
        Follower([rule], backend, say, method) as follower,
    ):
        follower.wait_for(signals.fileno())
        begun = False
        while not signals.take():
            follower.step()
            begun = begun or bool(follower.jobs())
            if begun and not follower.jobs():
                return
