# SPDX-License-Identifier: BSD-2-Clause
"""The agent: one follower per host that lives on, with its rules in a file."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from mltcp_tools.base.errors import BusyError, HostError, MltcpError
from mltcp_tools.base.units import counted, endpoint
from mltcp_tools.kernel.backends.base import Backend, Flow, Job
from mltcp_tools.kernel.host.leases import leased
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.live.agent.follow import Follower
from mltcp_tools.live.agent.metrics import Metrics
from mltcp_tools.live.agent.rules import Config, load_config
from mltcp_tools.live.attach.privileges import require_capabilities
from mltcp_tools.live.attach.restore import detach_jobs
from mltcp_tools.live.priorities.live import LivePriorities
from mltcp_tools.live.sources.messages import Mailbox
from mltcp_tools.live.trial.standing import Prover

_LINGER_S = 5.0
"""A job whose iterations are processes of their own comes back within that."""

_ONE = "An agent already runs on this host; stop it first (systemctl stop mltcp-agent)."


def run_agent(
    path: Path,
    mailbox: Path,
    backend: Backend,
    say: Callable[[str], None],
    metrics: str | None = None,
) -> None:
    """Follow the rules in the file until SIGTERM or SIGINT; SIGHUP reads them again.

    A file that can't be read or is wrong ends the agent at the start only; later the old rules stay
    in force and `say` gets the reason. mailbox: path of the socket that hooks send to.
    metrics: address at which to publish metrics. Raises BusyError where an agent runs already,
    HostError for what is missing, UnknownError where the kernel doesn't answer.
    """
    require_capabilities()
    config = load_config(path)
    with suppress(HostError, BusyError):  # which may change while the agent runs
        backend.loaded()
    with (
        ExitStack() as stack,
        exclusive("agent", _ONE),
        leased("mltcp agent", backend.name),
        Signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals,
        Mailbox(mailbox) as box,
        Follower(config.rules, backend, say, config.follow, box, _LINGER_S) as follower,
    ):
        if metrics is not None:
            follower.publish(stack.enter_context(Metrics(metrics, backend)))
            say(f"Metrics: http://{metrics}/metrics.")
        if config.priorities is not None:
            priorities = Priorities(stack.enter_context(LivePriorities(config.priorities)), say)
            follower.tell_flows(priorities.follow)
        prover = None
        if config.prove is not None:
            prover = stack.enter_context(Prover(config.prove, backend, say, time.monotonic()))
            follower.prove(prover)
        follower.wait_for(signals.fileno())
        _say_rules(path, config, say)
        notify("READY=1")
        while True:
            came = signals.take()
            if signal.SIGINT in came or signal.SIGTERM in came:
                break
            if signal.SIGHUP in came:
                config = _read_again(path, config, follower, say)
            follower.step()
        notify("STOPPING=1")
        if prover is not None:
            prover.close()  # which attaches what it had on trial
        if config.on_stop == "detach":
            _detach(follower.jobs(), say)


def _say_rules(path: Path, config: Config, say: Callable[[str], None]) -> None:
    say(f"Following {path}, rules: {len(config.rules)}.")
    for doubt in config.doubts:
        say(f"{path}: {doubt}")


class Priorities:
    """Live jobs' priorities as the agent has them: what goes wrong with them is said, and once."""

    def __init__(self, live: LivePriorities, say: Callable[[str], None]) -> None:
        self._live = live
        self._say = say
        self._failed = False

    def follow(self, jobs: Sequence[Job], flows: Sequence[Flow]) -> None:
        """These jobs and flows are there now."""
        if self._failed:
            return
        try:
            self._live.follow(jobs, flows)
        except MltcpError as error:
            self._failed = True
            self._say(f"Jobs no longer get priorities: {error}")
            return
        if not self._live.alive:
            self._failed = True
            self._say("The controller of priorities has died; all jobs have the same priority now.")


def _read_again(
    path: Path, config: Config, follower: Follower, say: Callable[[str], None]
) -> Config:
    """Put the file's rules in force; where it is wrong, keep the old ones and say so."""
    notify("RELOADING=1")
    try:
        new = load_config(path)
    except MltcpError as error:
        say(f"The rules stay as they were: {error}")
    else:
        follower.replace_rules(new.rules)
        _say_rules(path, new, say)
        for what in ("follow", "priorities", "prove"):
            if getattr(new, what) != getattr(config, what):
                say(f"`{what}` takes effect when the agent restarts.")
        config = new
    notify("READY=1")
    return config


def _detach(jobs: list[str], say: Callable[[str], None]) -> None:
    try:
        done = detach_jobs(jobs)
    except MltcpError as error:
        say(f"{', '.join(jobs)} stay attached: {error}")
        return
    restored = Counter(each.job for each in done if each.outcome == "restored")
    for job in dict.fromkeys(each.job for each in done):
        say(f"{job}: {counted(restored[job], 'connection')} restored.")
    for each in done:
        if each.outcome == "failed":
            say(f"{each.job}: {endpoint(*each.socket.local)} is not restored: {each.reason}.")


def notify(state: str) -> None:
    """Tell systemd (sd_notify(3)), if it asked for that; a datagram to the socket it names."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.sendto(state.encode(), address)
