# SPDX-License-Identifier: BSD-2-Clause
"""packetdrill's scripts say the same of a congestion control as of its base, and so does each ACK.

For a packetdrill that is installed: PACKETDRILL names its folder (github.com/google/packetdrill),
in which gtests/net/packetdrill is built. A script may fail on this kernel: asked is that it does
the same under both.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from netns.backends_here import RUNNABLE, backend_fixture, fresh_and_loaded
from support.packetdrill import (
    Ack,
    Outcome,
    Packetdrill,
    allowed,
    cgroup,
    installed,
)

from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_catch import BpfCatcher
from mltcp_tools.kernel.backends.bpf_sockets import kernel_sockets
from mltcp_tools.kernel.backends.catch import Catch, Catcher
from mltcp_tools.kernel.backends.kmod import KmodBackend

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not installed(), reason="no packetdrill: PACKETDRILL names its folder"),
]
backend = backend_fixture(fresh_and_loaded, RUNNABLE)

BASES = {"mltcp": "reno", "mltcp_reno": "reno", "mltcp_cubic": "cubic"}

AT_ONCE = 4
"""Scripts, which wait most of the time."""

ROUNDS = 6
"""Runs of a script until both have done the same once: the host may be busy."""


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Packetdrill]:
    folder = installed()
    assert folder
    with allowed("cubic"):
        yield Packetdrill(folder, tmp_path_factory.mktemp("bin"))


@contextlib.contextmanager
def job_of(backend: Backend, name: str, params: JobParams | None) -> Iterator[Path]:
    """A cgroup whose connections are a job's."""
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(cgroup())
        if params:
            backend.set_job(Job(1, "scripts", params))
            if isinstance(backend, BpfBackend):
                catcher: Catcher = BpfCatcher(kernel_sockets(), backend.home)
            else:
                assert isinstance(backend, KmodBackend)
                catcher = backend.catcher()
            stack.enter_context(catcher).set({group: Catch(1, name)})
        yield group


def same(_: Path, base: Outcome, own: Outcome) -> bool:
    """The traces as far as both came, if both were late."""
    late = base.late and own.late
    pairs = list(zip(base.acks, own.acks, strict=False))
    return base == own or (late and all(agree(a, b, len(a)) for a, b in pairs))


def agree(a: tuple[Ack, ...], b: tuple[Ack, ...], most: int) -> bool:
    count = min(most, len(a), len(b))
    return a[:count] == b[:count]


def bounded(script: Path, base: Outcome, own: Outcome) -> bool:
    """Slow start is the base's, and no more is added than is acknowledged."""
    segment = min(map(int, re.findall(r"\bmss (\d+)", script.read_text())), default=536)
    pairs = list(zip(base.acks, own.acks, strict=False))
    counts = [(before_avoidance(a), a, b) for a, b in pairs]
    return (
        (same(script, base, own) or any(count < len(a) for count, a, _ in counts))
        and all(agree(a, b, count) for count, a, b in counts)
        and not any(outgrows(acks, segment) for acks in own.acks)
    )


def before_avoidance(acks: tuple[Ack, ...]) -> int:
    """Count the ACKs that see a window that nothing but slow start, or a loss in it, has made."""
    return next((i + 1 for i, ack in enumerate(acks) if ack.cwnd >= ack.ssthresh), len(acks))


def outgrows(acks: tuple[Ack, ...], segment: int) -> bool:
    """Does a window grow by more than what was acknowledged, with no loss or undo that moves it?"""
    return any(
        after.cwnd - before.cwnd > -(-(after.una - before.una) // segment)
        for before, after in itertools.pairwise(acks)
        if before.ssthresh == after.ssthresh and before.cwnd >= before.ssthresh
    )


def gain(factor: int) -> JobParams:
    """Of flows that grow by so many times their base's increase, however long a script is."""
    return JobParams(2**40, 30, slope=0, intercept=factor, mechanisms=("increase",))


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize(
    ("params", "alike"),
    [
        pytest.param(None, same, id="no-job"),
        pytest.param(JobParams(2**40, 30, mechanisms=()), same, id="no-mechanism"),
        pytest.param(gain(1), same, id="gain-of-one"),
        pytest.param(gain(2), bounded, id="gain-of-two"),
    ],
)
def test_scripts_see_the_base(
    drill: Packetdrill,
    backend: Backend,
    name: str,
    params: JobParams | None,
    alike: Callable[[Path, Outcome, Outcome], bool],
) -> None:
    with cgroup() as apart, job_of(backend, name, params) as group:

        def differs(script: Path) -> str:
            """Return what the two do where that is never as it should; empty: it is."""
            bases, owns = drill.seen[script, BASES[name]], list[Outcome]()
            for _ in range(ROUNDS):
                owns.append(drill.run(script, name, group))
                if len(owns) > 1 or not bases:
                    bases.append(drill.run(script, BASES[name], apart))
                found = [(a, b) for a in bases for b in owns if alike(script, a, b)]
                if any(a == b or not a.late for a, b in found):
                    break
            others.append(bases[-1].acks != owns[-1].acks)
            return "" if found else f"{script}:\n{bases[-1]}\n{owns[-1]}\n"

        others = list[bool]()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = "".join(pool.map(differs, drill.scripts()))
    assert not found, found
    assert alike is same or any(others), "a gain of two acts nowhere"
