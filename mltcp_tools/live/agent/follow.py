# SPDX-License-Identifier: BSD-2-Clause
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

from mltcp_tools.base.errors import MltcpError, UsageError, reason
from mltcp_tools.base.units import counted, endpoint
from mltcp_tools.kernel.backends.base import Backend, Flow, Job
from mltcp_tools.kernel.host.leases import leased
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.live.agent.attaching import attach_new, forget_closed, have_new
from mltcp_tools.live.agent.catching import Catching
from mltcp_tools.live.agent.external_changes import notice_taken
from mltcp_tools.live.agent.followed import Followed
from mltcp_tools.live.agent.learning import Learning
from mltcp_tools.live.agent.metrics import Metrics
from mltcp_tools.live.agent.naming import ATTACH, declines, is_template, name_of, place_of, unclear
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.agent.rules import AUTO, Rule
from mltcp_tools.live.agent.wakeups import Wakeups, open_wakeups
from mltcp_tools.live.agent.watchlist import Watched, Watchlist
from mltcp_tools.live.attach.jobs import named_job
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.sources.messages import Mailbox
from mltcp_tools.live.trial.rollback import jobs_on_trial, settle
from mltcp_tools.live.trial.standing import Prover

_HEARD_MOST = 10_000
"""Datagrams between two looks; a thousand processes at ten iterations a second send as many, and
who floods the agent shall not keep it from its work."""

_TIDY_S = 60.0
_NAMELESS_S = 10.0
_LOOK_S = 1.0
"""All processes are looked at so often; new ones at every wake-up besides."""

_LOOK_MOST_S = 30.0
_SPARE = 80
"""Looks at much take at most an eightieth of a CPU's time, but follow each other after so
many seconds at the latest."""


def pause_s(*costs_s: float) -> float:
    """Return the time from one look to the next. costs_s: CPU time of the last two.

    The cheaper one counts, as a single look in which a library's probes are compiled takes seconds.
    """
    return min(_LOOK_MOST_S, max(_LOOK_S, _SPARE * min(costs_s)))


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
        self._catching = Catching(backend, self._notices, self._watchlist.environments)
        self._look_at = self._tidy_at = self._trials_at = 0.0
        self._cost_s = 0.0
        """Processor time that the last look took."""
        self._nameless_s: dict[tuple[int, int], float] = {}
        """Since when a process that a rule fits has had no job, by pid and start."""
        self._scans: list[float] = []
        self._on_trial: frozenset[str] = frozenset()
        """Names of jobs that a trial switches to and fro, which are let be meanwhile."""
        self._prover: Prover | None = None
        self._unhelped: set[str] = set()
        """Names of jobs from which mltcp was taken off, as it makes them slower."""
        self._heard_before = 0
        self._stack = ExitStack()

    def __enter__(self) -> Follower:
        with ExitStack() as stack:
            # Its follower's state comes first: by that one sees that a follower was killed, here as
            # later.
            stack.enter_context(self._learning)
            self._wakeups: Wakeups = stack.enter_context(
                open_wakeups(self._method, self._notices.say)
            )
            stack.enter_context(self._catching)
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

    def publish(self, metrics: Metrics) -> None:
        """Publish what is known of the jobs, from now on."""
        self._learning.metrics = metrics

    def prove(self, prover: Prover) -> None:
        """Compare the jobs with their base now and then, from now on."""
        self._prover = prover

    def replace_rules(self, rules: Sequence[Rule]) -> None:
        """Follow these from now on; processes that none of them fits any more are detached."""
        self._watchlist.rules = tuple(rules)
        self._unhelped.clear()
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
        now = time.monotonic()
        due = min([self._look_at, now + _LOOK_S, *self._scans])
        ready = self._selector.select(max(0.0, due - now))
        now = time.monotonic()
        for key, _ in ready:
            if key.data is self._wakeups:
                self._scans += self._wakeups.scan_times(now)
            elif key.data is not None:  # else only to be noticed, as with `wait_for`
                self._hear()
        self._learning.read(now)
        if now >= self._trials_at:
            self._trials_at = now + _LOOK_S
            before = self._on_trial, len(self._unhelped)
            self._or_warn(self._look_for_trials)
            self._prove(now)
            if (self._on_trial, len(self._unhelped)) != before:
                self._look_at = now
        if now >= self._look_at:
            begin_s = time.thread_time()
            self._wakeups.rearm()
            self._listen()
            self._update(self._watchlist.look(now), now, thorough=True)
            self._learning.tell(self._watchlist.of, now)
            tags = self._learning.show(now)
            if tags is not None:
                self._or_warn(notice_taken, self._untried(), tags, self._notices)
            before_s, self._cost_s = self._cost_s, time.thread_time() - begin_s
            self._look_at = now + pause_s(before_s, self._cost_s)
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
        alive = {id(each.job) for each in dropped if each.process.is_running()}
        for watched in dropped:
            self._let_go(watched)
        if any(each.attached and not each.process.is_running() for each in dropped):
            self._or_warn(forget_closed)
        for name, job in [*self._jobs.items()]:
            if self._watchlist.of(job):
                self._empty_s.pop(name, None)
            elif id(job) in alive or now - self._empty_s.setdefault(name, now) >= self._linger_s:
                self._close(name, ended=id(job) not in alive)
        for watched in self._watchlist:
            if watched.job is None or watched.declined is None:
                self._ask(watched)
            if watched.is_left_alone or watched.declined is None:
                continue
            if watched.job is not None and not watched.job.is_place_of(watched.process):
                self._notices.say(
                    f"Process {watched.process.pid} has left {watched.job.place}, so it is no"
                    f" longer of job {watched.job.job.name}."
                )
                self._let_go(watched)
            if watched.job is None and watched.rule.job is not None:
                name = name_of(watched.rule.job, watched.process, self._watchlist.environments)
                if name and is_template(watched.rule.job):
                    self._name(watched, name, place_of(watched.rule.job, watched.process))
                elif name:
                    watched.job = self._job(name, watched)
        if thorough:
            self._warn_of_nameless(now)
        known = self._untried()
        if thorough:
            self._catching.update(known, [each for each in self._watchlist if each.is_left_alone])
            new = known
        else:
            new = have_new(each for each in known if not self._catching.covers(each))
        attach_new(new, self._backend, self._notices, now)
        if now >= self._tidy_at and any(each.closed for each in known):
            self._tidy_at = now + _TIDY_S
            self._or_warn(forget_closed)
            for each in known:
                each.closed = False

    def _ask(self, watched: Watched) -> None:
        """Know whether the process declines, and let go of one that does since an exec."""
        process = watched.process
        if not process.image:  # it is in the middle of an exec
            return
        said = self._watchlist.environments.get(process, ATTACH)
        if watched.declined is None and unclear(said):
            self._notices.tell(
                "MLTCP_ATTACH",
                f"MLTCP_ATTACH of process {process.pid} is neither on nor off, so it counts as not"
                " set: start it with one of these.",
                "More processes have such an MLTCP_ATTACH.",
            )
        elif watched.declined is None and said is None:
            self._notices.tell(
                "environment",
                f"Process {process.pid} ({process.name}) has overwritten its environment, which may"
                " have said MLTCP_ATTACH=off, so it is not attached: start it after the agent, or"
                " its parent with MLTCP_ATTACH=on.",
                "More processes have overwritten their environment, and are not attached.",
            )
        watched.declined = declines(said, watched.rule.opt_in)
        if watched.declined:
            self._let_go(watched)

    def _warn_of_nameless(self, now: float) -> None:
        """Say which rules fit processes and attach none of them, as no name of a job is known."""
        nameless = [each for each in self._watchlist if each.job is None and not each.is_left_alone]
        self._nameless_s = {each.key: self._nameless_s.get(each.key, now) for each in nameless}
        for number, rule in enumerate(self._watchlist.rules, 1):
            own = [each for each in self._watchlist if each.rule == rule]
            waiting = [
                each
                for each in own
                if each.key in self._nameless_s and now - self._nameless_s[each.key] >= _NAMELESS_S
            ]
            if not waiting:
                continue
            named = len(own) - len(waiting)
            why = f"`{rule.job}` finds nothing" if rule.job else "they tell none by the hooks"
            self._notices.warn(
                f"Rule {number}: {len(own)} processes match, {named or 'none'} named; those without"
                f" the name of a job aren't attached: {why}."
            )

    def _untried(self) -> list[Watched]:
        """The processes whose jobs are known, and no trial's."""
        return [
            each
            for each in self._watchlist
            if each.job is not None
            and each.job.job.name not in self._on_trial
            and each.job.job.name not in self._unhelped
        ]

    def _look_for_trials(self) -> None:
        """Know which jobs are on trial, and put back what a killed trial left."""
        if settle():
            self._notices.say("A trial was killed; its jobs have been restored.")
        self._on_trial = jobs_on_trial()

    def _prove(self, now: float) -> None:
        """Let the standing proof go on, and take mltcp off what it slows down."""
        if self._prover is None:
            return
        attached = {
            each.job.job.name for each in self._watchlist if each.job is not None and each.ours
        }
        for name in self._prover.step(sorted(attached - self._unhelped), now):
            gain = self._prover.gains()[name]
            found = f"{name} is {-gain.mean:.1%} slower with mltcp (p = {gain.p:.3f})"
            if self._prover.rule.detach:
                self._unhelped.add(name)
                self._notices.say(f"{found}; it is detached until the rules are read again.")
                self._detach(name, job=name)
            else:
                self._notices.say(f"{found}; it stays attached, as the rules say.")
        self._learning.gains = self._prover.gains()

    def _or_warn(self, do: Callable[..., None], *arguments: object) -> None:
        """Do it; say why, where it fails."""
        try:
            do(*arguments)
        except (MltcpError, OSError) as error:
            self._notices.warn(reason(error))

    def _let_go(self, watched: Watched) -> None:
        """The process has ended, or no rule fits it any more, or another one than before."""
        self._learning.forget(watched.process.pid)
        if watched.job is None:
            return
        watched.job.forget(watched.process.pid)
        # What a process that ended shared with others is theirs still.
        if watched.attached and watched.process.is_running():
            self._detach(f"process {watched.process.pid}", pid=watched.process.pid)
        watched.job = None
        watched.settled, watched.ours = set(), set()

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
                self._notices.say(
                    f"{what}: {endpoint(*each.socket.local)} is not restored: {each.reason}."
                )
        if restored := sum(each.outcome == "restored" for each in done):
            self._notices.say(f"{what}: {counted(restored, 'connection')} restored.")

    # Jobs

    def _job(self, name: str, watched: Watched, place: str = "") -> Followed | None:
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
            self._jobs[name] = Followed(job, watched.rule, watched.process.uid, place)
            # Others learn of it by the next look, which mustn't be after the job's end.
            self._look_at = min(self._look_at, time.monotonic() + _LOOK_S)
        return self._jobs[name]

    def _close(self, name: str, ended: bool) -> None:
        """No process of the job is followed any more: forget it, and say how it went.

        ended: the last one has ended; else no rule fits it any more.
        """
        job = self._jobs.pop(name)
        self._unhelped.discard(name)
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
            if watched is None or watched.is_left_alone:
                continue  # no rule fits it, whatever it says
            if watched.job is None and watched.rule.job is None and message.job:
                self._name(watched, message.job)
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

    def _name(self, watched: Watched, name: str, place: str = "") -> None:
        """A process whose rule leaves that to it has told, or shown, its job's name.

        place: as naming.place_of. There, root's processes manage a job of other users: whose ranks
        come later, as slurmstepd starts them.
        """
        job, process = self._job(name, watched, place), watched.process
        if job is None:
            return
        if (job.rule, job.place) == (watched.rule, place):
            if place and job.owner == 0 != process.uid:
                job.owner = process.uid
                for each in self._watchlist.of(job):
                    each.manages = True
                    self._let_go(each)
            if job.owner == process.uid:
                watched.job = job
                return
            if place and process.uid == 0:
                watched.manages = True
                return
        why = "another user's job, or another rule's; it is left alone."
        if job.rule == watched.rule and job.place != place:
            why = (
                f"a job of {job.place or 'other processes'}, and this one is of {place}; it is left"
                " alone, unless the rule's `job` tells them apart, as with {pod} or a longer"
                " {cgroup:…}."
            )
        self._notices.warn(
            f"Process {process.pid} of uid {process.uid} calls itself {name}, but that is {why}"
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
