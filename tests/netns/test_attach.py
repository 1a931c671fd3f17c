# SPDX-License-Identifier: BSD-2-Clause
"""Attaching and detaching on the real kernel, on every backend it can run.

The processes are those of connected.py; nothing here looks at how a backend does it.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Sequence
from contextlib import ExitStack

import pytest
from netns.attached import JOB, assert_nothing_recorded, connections, outcomes, recorded, tags
from netns.backends_here import backend_fixture, fresh_and_loaded, unload_by_force
from netns.connected import FIRST_CC, attach, holder, with_pid

from mltcp_tools.base.errors import BusyError
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.congestion_controls import OBSERVED
from mltcp_tools.live.attach.jobs import change_parameters, named_job
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.sockets import sockets
from mltcp_tools.live.attach.state import StateFiles

backend = backend_fixture(fresh_and_loaded)

CONTAINER = (
    *("--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-c", 'ip link set lo up && exec "$@"', "sh"),
)
"""Has unshare start a command in namespaces of its own, as a container has them."""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_attach_and_detach(backend: Backend, address: str) -> None:
    with holder(3, address) as held:
        found = connections(held)
        assert [each.fd for each in found] == held.fds
        assert {each.family for each in found} == {6 if address == "::1" else 4}
        assert {each.remote for each in found} == {(address.removeprefix("::ffff:"), held.port)}

        changes = attach(found, JOB, "mltcp", backend)
        assert [(each.old, each.new) for each in changes] == [(FIRST_CC, "mltcp")] * 3
        assert outcomes(changes) == ["switched"] * 3
        assert held.ccs() == ["mltcp"] * 3
        assert tags(backend) == {each.cookie: JOB.id for each in found}
        assert backend.jobs() == [JOB]
        (state,) = StateFiles().read()
        assert (state.job, state.backend) == (JOB, backend.name)
        assert [(each.pid, each.fd, each.old, each.new) for each in state.sockets] == [
            (held.pid, fd, FIRST_CC, "mltcp") for fd in held.fds
        ]

        restored = detach(job="seven")
        assert [(each.outcome, each.new) for each in restored] == [("restored", FIRST_CC)] * 3
        assert held.ccs() == [FIRST_CC] * 3
        assert tags(backend) == {}
        assert backend.jobs() == []
        assert_nothing_recorded()


@pytest.mark.parametrize("user", [(), ("--user", "--map-root-user")])
def test_a_container_with_its_own_namespaces(backend: Backend, user: Sequence[str]) -> None:
    with holder(2, through=("unshare", *user, *CONTAINER)) as held:
        found = connections(held)
        assert {each.netns for each in found} == {process(held.pid).netns}
        assert process(held.pid).netns != process(os.getpid()).netns
        home = os.readlink("/proc/thread-self/ns/net")
        assert outcomes(attach(found, JOB, "mltcp", backend)) == ["switched"] * 2
        assert os.readlink("/proc/thread-self/ns/net") == home
        assert held.ccs() == ["mltcp"] * 2
        assert [each.outcome for each in detach(pid=held.pid)] == ["restored"] * 2
        assert held.ccs() == [FIRST_CC] * 2


def test_a_socket_that_closes_in_between(backend: Backend) -> None:
    with holder(3) as held:
        found = connections(held)
        held.ask("close", 1)
        changes = attach(found, JOB, "mltcp", backend)
        assert outcomes(changes) == ["switched", "gone", "switched"]
        assert "closed" in changes[1].reason
        assert recorded() == {"seven": {held.fds[0], held.fds[2]}}
        held.ask("close", 0)
        assert [each.outcome for each in detach()] == ["gone", "restored"]
        assert held.ccs() == [FIRST_CC]


def test_a_connection_that_is_reset_in_between(backend: Backend) -> None:
    with holder(2) as held:
        found = connections(held)
        held.ask("reset")
        changes = attach(found, JOB, "mltcp", backend)
        assert [(each.outcome, each.reason) for each in changes] == [
            ("gone", "the connection has ended")
        ] * 2
        assert held.ccs() == [FIRST_CC] * 2
    with holder(2) as held:
        attach(connections(held), JOB, "mltcp", backend)
        held.ask("reset")
        assert [each.outcome for each in detach()] == ["restored"] * 2


def test_a_descriptor_that_became_another_socket(backend: Backend) -> None:
    with holder(2) as held:
        found = connections(held)
        held.ask("replace", 0)
        changes = attach(found, JOB, "mltcp", backend)
        assert outcomes(changes) == ["gone", "switched"]
        assert "another socket" in changes[0].reason
        assert held.ccs() == [FIRST_CC, "mltcp"]
        held.ask("replace", 1)
        held.ask("choose", 1, "mltcp")  # as a program may by itself: not ours to put back
        assert [each.outcome for each in detach()] == ["gone"]
        assert held.ccs() == [FIRST_CC, "mltcp"]


def test_a_pid_that_was_reused(backend: Backend) -> None:
    with ExitStack() as stack:
        with holder(2) as first:
            found = connections(first)
        second = with_pid(first.pid)
        stack.callback(second.end)
        assert second.fds == first.fds
        changes = attach(found, JOB, "mltcp", backend)
        assert outcomes(changes) == ["gone"] * 2
        assert "another process" in changes[0].reason
        assert sockets(found[0].process) == []
        assert second.ccs() == [FIRST_CC] * 2

    with ExitStack() as stack:
        with holder(2) as first:
            attach(connections(first), JOB, "mltcp", backend)
        second = with_pid(first.pid)
        stack.callback(second.end)
        second.ask("choose", 0, "mltcp")
        assert [each.outcome for each in detach(pid=first.pid)] == ["gone"] * 2
        assert second.ccs() == ["mltcp", FIRST_CC]


def test_a_thousand_sockets_with_few_descriptors_of_our_own(backend: Backend) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(4096, before[0]), before[1]))
        held = stack.enter_context(holder(1000))
        found = connections(held)
        few = max(int(each) for each in os.listdir("/proc/self/fd")) + 40
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        attach(found[:1], JOB, "mltcp", backend)  # what it works with is kept
        detach()
        open_before = len(os.listdir("/proc/self/fd"))
        assert outcomes(attach(found, JOB, "mltcp", backend)) == ["switched"] * 1000
        assert held.ccs() == ["mltcp"] * 1000
        assert len(tags(backend)) == 1000
        assert [each.outcome for each in detach()] == ["restored"] * 1000
        assert len(os.listdir("/proc/self/fd")) == open_before
        assert held.ccs() == [FIRST_CC] * 1000


def test_a_socket_that_processes_share_is_changed_once(backend: Backend) -> None:
    with holder(2) as held, ExitStack() as stack:
        child = held.ask("fork")
        stack.callback(os.kill, child, signal.SIGKILL)
        both = [*connections(held), *sockets(process(child))]
        both = [each for each in both if each.state == "established"]
        assert len(both) == 4
        assert outcomes(attach(both, JOB, "mltcp", backend)) == ["switched"] * 2
        first = {record.pid for state in StateFiles().read() for record in state.sockets}
        assert len(first) == 1
        # It lives on in the other process when the one by which it was found has ended.
        if first == {child}:
            os.kill(child, signal.SIGKILL)
        else:
            held.end()
        (now, _) = [each.new for each in detach()]
        assert now == FIRST_CC


def test_a_socket_moved_to_another_descriptor_is_found(backend: Backend) -> None:
    with holder(2) as held:
        attach(connections(held), JOB, "mltcp", backend)
        held.ask("move", 0)
        assert [each.outcome for each in detach(job="seven")] == ["restored"] * 2
        assert held.ccs() == [FIRST_CC] * 2


def test_what_somebody_else_chose_since_stays(backend: Backend) -> None:
    with holder(2) as held:
        attach(connections(held), JOB, "mltcp", backend)
        held.ask("choose", 0, "cubic")
        left, restored = detach()
        assert (left.outcome, left.new, restored.outcome) == ("left", "cubic", "restored")
        assert "somebody else" in left.reason
        assert held.ccs() == ["cubic", FIRST_CC]
    assert_nothing_recorded()


def test_a_socket_that_runs_mltcp_by_itself_is_only_tagged(backend: Backend) -> None:
    with holder(1) as held:
        held.ask("choose", 0, "mltcp")
        (change,) = attach(connections(held), JOB, "mltcp", backend)
        assert (change.outcome, change.old, change.new) == ("tagged", "mltcp", "mltcp")
        assert list(tags(backend).values()) == [JOB.id]
        (done,) = detach()
        assert (done.outcome, done.new) == ("restored", "mltcp")
        assert tags(backend) == {}


def test_attaching_again_keeps_what_was_there_first(backend: Backend) -> None:
    with holder(2) as held:
        found = connections(held)
        attach(found[:1], JOB, "mltcp", backend)
        assert outcomes(attach(connections(held), JOB, "mltcp", backend)) == ["tagged", "switched"]
        assert outcomes(attach(connections(held), JOB, "mltcp_reno", backend)) == ["switched"] * 2
        assert held.ccs() == ["mltcp_reno"] * 2
        assert [each.new for each in detach()] == [FIRST_CC] * 2
        assert held.ccs() == [FIRST_CC] * 2


def test_sockets_move_to_another_job(backend: Backend) -> None:
    other = Job(8, "eight")
    with holder(2) as held:
        found = connections(held)
        attach(found, JOB, "mltcp", backend)
        with pytest.raises(BusyError, match=r"seven -> eight \(1 connections\); give --move"):
            attach(found[:1], other, "mltcp", backend)
        (left,) = attach(found[:1], other, "mltcp", backend, move=None)
        assert (left.outcome, left.before) == ("taken", "seven")
        assert tags(backend) == {each.cookie: 7 for each in found}
        assert recorded() == {"seven": set(held.fds)}
        (moved,) = attach(found[:1], other, "mltcp", backend, move=True)
        assert (moved.before, moved.job, moved.outcome) == ("seven", "eight", "tagged")
        assert recorded() == {"seven": {held.fds[1]}, "eight": {held.fds[0]}}
        assert tags(backend) == {found[0].cookie: 8, found[1].cookie: 7}
        attach(found, other, "mltcp", backend, move=True)
        assert recorded() == {"eight": set(held.fds)}
        assert backend.jobs() == [other]
        assert [each.new for each in detach(job="eight")] == [FIRST_CC] * 2


def test_job_names_keep_their_id_and_parameters(backend: Backend) -> None:
    backend.set_job(Job(1, "taken"))
    first = named_job("a", backend, {"burst_bytes": 5})
    assert first == Job(2, "a", JobParams(burst_bytes=5))
    with holder(1) as held:
        attach(connections(held), first, "mltcp", backend)
        assert named_job("a", backend, {"gap_s": 1.0}).params == JobParams(burst_bytes=5, gap_s=1.0)
        assert named_job("b", backend, {}).id == 3
        unload_by_force(backend)
        backend.load()
        assert named_job("a", backend, {}) == first
        assert named_job("b", backend, {}).id == 1
        backend.set_job(Job(2, "another's"))  # took the id while nothing was loaded
        moved = named_job("a", backend, {})
        assert moved == Job(1, "a", JobParams(burst_bytes=5))
        attach(connections(held), moved, "mltcp", backend)
        assert recorded() == {"a": {held.fds[0]}}
        assert [each.new for each in detach(job="a")] == [FIRST_CC]
        assert backend.jobs() == [Job(2, "another's")]


def test_parameters_change_as_long_as_the_job_is_attached(backend: Backend) -> None:
    changed = Job(JOB.id, JOB.name, JobParams(burst_bytes=5, gap_s=1.0))
    with holder(1) as held:
        attach(connections(held), JOB, "mltcp", backend)
        assert change_parameters(changed, backend)
        assert backend.jobs() == [changed]
        assert [state.job for state in StateFiles().read()] == [changed]
        assert not change_parameters(Job(JOB.id, "another"), backend)
        detach()
        assert not change_parameters(changed, backend)
    assert backend.jobs() == []
    assert_nothing_recorded()


def test_what_is_attached_is_observed_by_what_it_ran_before(backend: Backend) -> None:
    with holder(1) as held:
        held.ask("choose", 0, "cubic")
        attach(connections(held), JOB, "mltcp", backend)
        (change,) = attach(connections(held), JOB, OBSERVED, backend)
        assert (change.old, change.new) == ("mltcp", "mltcp_cubic")
        assert [each.new for each in detach()] == ["cubic"]
