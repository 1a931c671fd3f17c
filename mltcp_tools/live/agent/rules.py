# SPDX-License-Identifier: BSD-2-Clause
"""Rules: the processes that belong to a job, and the treatment of their flows.

The agent's configuration file is a list of such rules:

    follow: auto                 # or tracepoint, polling: how new sockets are noticed
    on_stop: detach              # or keep: what becomes of attached sockets when the agent stops
    priorities:                  # leave it out for none
      interfaces: [eth0]         # by which the jobs send
      weight: none               # what goes first besides short bursts (lab priorities --help)
      levels: 8                  # of priority that the switches have
      controller: here           # or elsewhere: mltcp lab priorities --host
    prove:                       # leave it out for none
      share: 5%                  # of the time that all jobs run what they ran before
      slower: 2%                 # a job proven to be slower with mltcp, by this share or more,
      then: detach               # or report: is detached, or only reported
      period: 60s                # length of a period of either
    rules:
      - job: gpt2                # without it: only processes that tell a name through the hooks
        cgroup: [job_1234]       # any of: pid, tree, command, cgroup, port, netns, user; all that
        command: [train.py]      # are given must fit, and of each list one entry
        burst_bytes: auto        # bytes of one burst of one flow, such as 2.5MB
        gap: auto                # silence that ends an iteration, such as 170ms
        cc: mltcp                # observe: only look, and change nothing
        kinds: [nccl-data]       # default: those that carry data; all: every socket
        opt_in: true             # only processes with MLTCP_ATTACH=on in their environment
        slope: 1.75
        intercept: 0.25
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mltcp_tools.base.document import Section, read_section
from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.base.units import parse_bytes, parse_fraction, parse_seconds
from mltcp_tools.base.values import choice, number, yes_no
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.congestion_controls import NAMES, OBSERVED, RECOMMENDED
from mltcp_tools.live.agent.naming import check_template
from mltcp_tools.live.attach.classify import ALL, KINDS
from mltcp_tools.live.attach.selection import Target, UnknownUser, user_id
from mltcp_tools.live.priorities.coflows import LEVELS, WEIGHTS
from mltcp_tools.live.priorities.live import Prioritised
from mltcp_tools.live.trial.standing import Standing

AUTO = "auto"
CONFIG = Path("/etc/mltcp/agent.yaml")
METHODS = (AUTO, "tracepoint", "polling")
"""The ways to notice new sockets; auto: the tracepoint where it is available."""

ON_STOP = ("detach", "keep")

_LARGEST = 1 << 20
_TARGETS = ("pid", "tree", "command", "cgroup", "port", "netns", "user")
_GIVEN = ("slope", "intercept")
_TOP = ("rules", "follow", "on_stop", "priorities", "prove")
_PROVE = ("share", "slower", "then", "period")
_THEN = ("detach", "report")
_PRIORITIES = ("interfaces", "weight", "levels", "controller")
_CONTROLLERS = ("here", "elsewhere")
_RULE = ("job", *_TARGETS, "burst_bytes", "gap", "cc", "kinds", "opt_in", *_GIVEN)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Rule:
    """The way in which the processes of a target are followed.

    job: its name, or a template of one (naming.py); None: the one each process tells through the
    hooks, and none until it does. kinds: kinds of sockets
    (classify.KINDS) to attach, ALL for every one; none: those that carry data. burst_bytes: of one
    burst of one flow; gap_s: seconds; None: what the metadata sources find out. opt_in: only
    processes that ask for it (naming.py). given: other fields of JobParams.
    """

    job: str | None
    target: Target
    kinds: tuple[str, ...] = ()
    congestion_control: str = RECOMMENDED
    burst_bytes: int | None = None
    gap_s: float | None = None
    opt_in: bool = False
    given: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target == Target():
            raise UsageError(f"the rule names no processes: add {_or(_TARGETS)}.")
        JobParams(burst_bytes=self.burst_bytes or 0, gap_s=self.gap_s or 0.0, **self.given)
        if self.job is not None:
            check_template(self.job)

    def parameters(self) -> dict[str, Any]:
        """The fields of JobParams that the rule gives."""
        fixed = {"burst_bytes": self.burst_bytes, "gap_s": self.gap_s}
        mechanisms = () if self.congestion_control == OBSERVED else None
        return (
            {"mechanisms": mechanisms}
            | self.given
            | {name: each for name, each in fixed.items() if each is not None}
        )


@dataclass(frozen=True)
class Config:
    """The agent's configuration: the rules, of which the first that fits a process counts.

    doubts: a sentence for each rule that is left out, or that may do less than it seems to.
    """

    rules: tuple[Rule, ...]
    follow: str = AUTO
    on_stop: str = "detach"
    priorities: Prioritised | None = None
    prove: Standing | None = None
    doubts: tuple[str, ...] = ()


def load_config(path: Path) -> Config:
    """Read and check the file.

    UsageError names file, line and field of what is wrong. HostError for a file that somebody else
    may write: its rules decide what is done to other people's processes.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            info = os.fstat(file.fileno())
            data = file.read(_LARGEST + 1) if stat.S_ISREG(info.st_mode) else b""
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    if not stat.S_ISREG(info.st_mode):
        raise UsageError(f"{path} is not a plain file.")
    if info.st_uid not in (0, os.geteuid()) or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise HostError(
            f"{path} may be written by users other than its owner; run: chown root {path};"
            f" chmod go-w {path}"
        )
    if len(data) > _LARGEST:
        raise UsageError(f"{path} is larger than 1 MiB, so the agent doesn't read it.")
    try:
        return parse_config(data.decode(), str(path))
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8.") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for its writer


def parse_config(text: str, file: str) -> Config:
    """The configuration in the text; `file` is its name for messages."""
    top = read_section(text, file, _TOP)
    given: dict[str, dict[str, Any]] = {}
    rules = []
    doubts = []
    for section in top.sections("rules", _RULE, empty=True):
        try:
            rule = _rule(section)
        except UnknownUser as error:  # who may be known by the next reading
            doubts.append(f"{section.path} is left out: {error}")
            continue
        if rule.job is None:
            doubts.append(
                f"{section.path} gives no job, so it takes only processes that tell theirs through"
                ' the hooks (mltcp_tools.hooks); else give `job: NAME`, `"{env:SLURM_JOB_ID}"`,'
                ' `"{cgroup:job_(\\d+)}"` or `"{pod}"`.'
            )
        if rule.job and given.setdefault(rule.job, rule.parameters()) != rule.parameters():
            raise section.error(
                "a rule above gives this job another burst_bytes, gap, slope or intercept; give the"
                " same in both, or name another job.",
                "job",
            )
        rules.append(rule)
    return Config(
        rules=tuple(rules),
        follow=top.get("follow", choice(METHODS), AUTO),
        on_stop=top.get("on_stop", choice(ON_STOP), "detach"),
        priorities=_priorities(top.section("priorities", _PRIORITIES)),
        prove=_prove(top.section("prove", _PROVE)),
        doubts=tuple(doubts),
    )


def _prove(section: Section | None) -> Standing | None:
    if section is None:
        return None
    share = section.get("share", parse_fraction, 0.05)
    slower = section.get("slower", parse_fraction, 0.02)
    period_s = section.get("period", parse_seconds, 60.0)
    if not 0 < share <= 0.5:
        raise section.error("is not above 0 and up to 50%.", "share")
    if not 0 <= slower <= 1:
        raise section.error("is not 0% to 100%.", "slower")
    if not 1 <= period_s <= 3600:
        raise section.error("is not 1s to 3600s.", "period")
    return Standing(
        share, slower, section.get("then", choice(_THEN), "detach") == "detach", period_s
    )


def _priorities(section: Section | None) -> Prioritised | None:
    if section is None:
        return None
    named: tuple[str, ...] | None = section.get("interfaces", _list(_word), None)
    if named is None:
        raise section.error("names no interface; name those on which jobs send.", "interfaces")
    return Prioritised(
        named,
        section.get("weight", choice(WEIGHTS), Prioritised.weight),
        section.get("levels", _levels, LEVELS),
        section.get("controller", choice(_CONTROLLERS), "here") == "elsewhere",
    )


def _rule(section: Section) -> Rule:
    try:
        return Rule(
            job=section.get("job", _job, None),
            target=Target(
                pids=section.get("pid", _list(_number), ()),
                trees=section.get("tree", _list(_number), ()),
                patterns=section.get("command", _list(_word), ()),
                cgroups=section.get("cgroup", _list(_word), ()),
                ports=section.get("port", _list(_number), ()),
                netns=section.get("netns", _list(_word), ()),
                users=section.get("user", _list(_user), ()),
            ),
            kinds=section.get("kinds", _kinds, ()),
            congestion_control=_congestion_control(section),
            burst_bytes=section.get("burst_bytes", _auto(parse_bytes), None),
            gap_s=section.get("gap", _auto(parse_seconds), None),
            opt_in=section.get("opt_in", yes_no, False),
            given={name: section.get(name, number) for name in section if name in _GIVEN},
        )
    except UsageError as error:
        if isinstance(error.__cause__, UnknownUser):
            raise error.__cause__ from None
        if str(error).startswith(f"{section.file}:"):
            raise
        raise section.error(str(error)) from None


def _congestion_control(section: Section) -> str:
    name = section.get("cc", choice((*NAMES, OBSERVED)), RECOMMENDED)
    if name == OBSERVED and any(each in section for each in _GIVEN):
        raise section.error(
            "observe changes nothing, so it can't be combined with slope or intercept.", "cc"
        )
    return name


def _list(parse: Callable[[object], _T]) -> Callable[[object], tuple[_T, ...]]:
    def parse_all(value: object) -> tuple[_T, ...]:
        values = value if isinstance(value, list) else [value]
        if not values:
            raise UsageError("is an empty list; leave the field out.")
        return tuple(parse(each) for each in values)

    return parse_all


def _auto(parse: Callable[[object], _T]) -> Callable[[object], _T | None]:
    def parse_one(value: object) -> _T | None:
        return None if value == AUTO else parse(value)

    return parse_one


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{value!r} is not a whole number.")
    return value


def _levels(value: object) -> int:
    if not 2 <= _number(value) <= LEVELS:
        raise UsageError(f"{value!r} is not a count of levels, 2 to {LEVELS}.")
    return _number(value)


def _word(value: object) -> str:
    if not isinstance(value, (str, int)) or isinstance(value, bool) or not str(value).strip():
        raise UsageError(f"{value!r} is not a name.")
    return str(value)


def _user(value: object) -> int:
    return user_id(_word(value))


def _job(value: object) -> str:
    return check_template(_word(value))


def _kinds(value: object) -> tuple[str, ...]:
    return _list(choice((ALL, *KINDS)))(value)


def _or(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
