# SPDX-License-Identifier: BSD-2-Clause
"""Attaching in the kernel alone (eBPF): without ptrace, by cgroup, and before the first data."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from netns.attached import JOB, assert_nothing_recorded, connections, outcomes, recorded, tags
from netns.backends_here import backend_fixture, collect, fresh_and_loaded, unload_by_force
from netns.connected import FIRST_CC, attach, holder, namespace
from netns.test_refused_calls import with_read_only_pins
from netns.trainings import agent
from support.waiting import wait_for

from mltcp_tools.base.errors import BusyError, HostError
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_catch import BpfCatcher
from mltcp_tools.kernel.backends.bpf_sockets import (
    FIRST_PIN,
    KernelSockets,
    SocketAnswer,
    Wish,
    kernel_sockets,
)
from mltcp_tools.kernel.backends.catch import Catch
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.live.attach import via_bpf_iter
from mltcp_tools.live.attach.jobs import announce
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.attach.switch import Wanted, attach_all

pytestmark = pytest.mark.bpf
backend = backend_fixture(fresh_and_loaded, ["bpf"])

CODE = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all")


@pytest.fixture
def cgroup() -> Iterator[Path]:
    path = cgroups.root() / f"mltcp-test-{os.getpid()}-{uuid.uuid4().hex[:4]}"
    path.mkdir()
    yield path
    cgroups.remove(path.name)


def within(path: Path) -> tuple[str, ...]:
    """Starts a command in the cgroup."""
    return ("sh", "-c", f'echo $$ >{path}/cgroup.procs; exec "$@"', "sh")


@contextlib.contextmanager
def catching(backend: Backend, rules: dict[Path, Catch]) -> Iterator[BpfCatcher]:
    assert isinstance(backend, BpfBackend)
    announce([JOB], backend)
    with BpfCatcher(kernel_sockets(), backend.home) as found:
        found.set(rules)
        yield found


def test_no_process_is_touched(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither attaching nor detaching borrows anything, in whichever network namespace."""

    def refuse(*_: object) -> None:
        raise AssertionError("borrowed")

    with namespace() as other:
        through = ("ip", "netns", "exec", other)
        with holder(3) as here, holder(2, through=through) as there:
            found = [*connections(here), *connections(there)]
            assert len({each.netns for each in found}) == 2
            monkeypatch.setattr(via_bpf_iter.ViaPidfd, "look", refuse)
            monkeypatch.setattr(via_bpf_iter.ViaPidfd, "give", refuse)
            monkeypatch.setattr(via_bpf_iter.ViaPidfd, "restore", refuse)
            monkeypatch.setattr(via_bpf_iter.ViaPidfd, "tags", refuse)
            assert outcomes(attach(found, JOB, "mltcp", backend)) == ["switched"] * 5
            assert here.ccs() == ["mltcp"] * 3
            assert there.ccs() == ["mltcp"] * 2
            assert tags(backend) == {each.cookie: JOB.id for each in found}
            assert [each.outcome for each in detach(job="seven")] == ["restored"] * 5
            assert here.ccs() == [FIRST_CC] * 3
            assert there.ccs() == [FIRST_CC] * 2
    assert tags(backend) == {}
    assert_nothing_recorded()


def test_processes_that_cannot_be_opened(backend: Backend, cgroup: Path) -> None:
    def mltcp(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*WITHOUT_PTRACE, sys.executable, "-c", CODE, *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    with holder(2, through=within(cgroup)) as held:
        opened = [*WITHOUT_PTRACE, "readlink", f"/proc/{held.pid}/fd/0"]
        assert subprocess.run(opened, capture_output=True).returncode != 0
        run = mltcp("attach", f"cgroup:{cgroup.name}", "--job", "a", "--kind", "all")
        assert (run.returncode, run.stderr.count("switched")) == (0, 1), run
        assert held.ccs() == ["mltcp"] * 2
        run = mltcp("detach", "a")
        assert run.returncode == 0, run
        assert held.ccs() == [FIRST_CC] * 2


def test_a_connection_as_short_as_can_be_is_caught_at_both_ends(
    backend: Backend, cgroup: Path
) -> None:
    with (
        holder(1, through=within(cgroup)) as inside,
        holder(1) as outside,
        catching(backend, {cgroup: Catch(JOB.id, "mltcp")}),
    ):
        all_caught = {"connected": {"mltcp": 1000}, "accepted": {"mltcp": 1000}}
        assert inside.ask("churn", 1000) == all_caught
        assert outside.ask("churn", 10)["connected"] == {FIRST_CC: 10}
        assert inside.ccs() == [FIRST_CC]
        inside.ask("connect")
        assert [*tags(backend).values()].count(JOB.id) >= 1
        with pytest.raises(BusyError, match="seven -> eight"):  # though it isn't on record yet
            attach(connections(inside)[1:], Job(8, "eight"), "mltcp", backend)
        assert {each.outcome for each in detach(job="seven")} == {"restored"}
        assert inside.ccs() == [FIRST_CC] * 2
    assert tags(backend) == {}
    assert_nothing_recorded()


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (Catch(JOB.id, "mltcp"), "mltcp"),
        (Catch(JOB.id, choices={FIRST_CC: "mltcp_reno"}), "mltcp_reno"),
    ],
)
def test_a_socket_that_connects_again_is_caught_again(
    backend: Backend, cgroup: Path, rule: Catch, name: str
) -> None:
    """The end of its first connection takes its tag away, but not its congestion control."""
    with holder(1, through=within(cgroup)) as inside, catching(backend, {cgroup: rule}):
        inside.ask("refused")
        inside.ask("connect")
        inside.ask("again", 2)
        assert inside.ccs() == [FIRST_CC, name, name]
        caught = connections(inside)[1:]
        tagged = tags(backend)
        assert [tagged.get(each.cookie) for each in caught] == [JOB.id] * 2
        assert {each.outcome for each in detach(job="seven")} == {"restored"}
        assert inside.ccs() == [FIRST_CC] * 3
    assert tags(backend) == {}
    assert_nothing_recorded()


def test_reconnecting_socket_gets_its_chosen_control_back(backend: Backend, cgroup: Path) -> None:
    rule = Catch(JOB.id, "mltcp")
    with holder(1, through=within(cgroup)) as inside, catching(backend, {cgroup: rule}):
        inside.ask("connect")
        inside.ask("choose", 1, "cubic")
        inside.ask("again", 1)
        assert inside.ccs() == [FIRST_CC, "mltcp"]
        assert {each.outcome for each in detach(job="seven")} == {"restored"}
        assert inside.ccs() == [FIRST_CC, "cubic"]


def test_iterations_of_what_is_caught(
    backend: Backend, cgroup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that sends nothing has none; one that does is known without looking for it."""

    def refuse(_: BpfBackend) -> None:
        raise AssertionError("looked for cookies")

    monkeypatch.setattr(BpfBackend, "cookies", refuse)
    with (
        holder(1, through=within(cgroup)) as inside,
        catching(backend, {cgroup: Catch(JOB.id, "mltcp")}),
        backend.iterations() as stream,
    ):
        inside.ask("churn", 100)
        inside.ask("churn", 20, 5000)
        events = collect(stream, 20)
        assert [(each.job_id, each.bytes) for each in events] == [(JOB.id, 5000)] * 20
        assert len({each.cookie for each in events} - {0}) == 20


def test_sockets_are_iterated_once_and_only_for_changes(
    backend: Backend, cgroup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk takes references to what isn't a connection yet, which old kernels get wrong."""
    walks: list[int] = []

    def counted(
        self: KernelSockets, wishes: dict[int, Wish], *rest: Any
    ) -> dict[int, SocketAnswer]:
        walks.append(len(wishes))
        return fulfil(self, wishes, *rest)

    fulfil = KernelSockets.fulfil
    monkeypatch.setattr(KernelSockets, "fulfil", counted)
    with holder(2) as one, holder(3) as other, holder(1, through=within(cgroup)) as inside:
        jobs = {1: Job(1, "one"), 2: Job(2, "other"), 3: Job(1, "not one")}
        asked = [
            Wanted(connections(one), lambda _: jobs[1], "mltcp"),
            Wanted(connections(inside), lambda _: jobs[3], "mltcp"),
            Wanted(connections(other), lambda _: jobs[2], "mltcp"),
        ]
        first, refused, second = attach_all(asked, backend)
        assert (outcomes(first.changes), outcomes(second.changes)) == (
            ["switched"] * 2,
            ["switched"] * 3,
        )
        # What keeps one job out keeps no other out.
        assert "already attached as 'one'" in str(refused.error)
        assert inside.ccs() == [FIRST_CC]
        assert walks == [5]
        assert outcomes(attach(connections(one), jobs[1], "mltcp", backend)) == ["tagged"] * 2
        with catching(backend, {cgroup: Catch(JOB.id, "mltcp")}):
            inside.ask("connect")
            caught = connections(inside)[1:]
            assert outcomes(attach(caught, JOB, "mltcp", backend)) == ["tagged"]
        assert recorded().keys() == {"one", "other", "seven"}
        assert walks == [5]
        assert {each.outcome for each in detach()} == {"restored"}
        assert inside.ccs() == [FIRST_CC] * 2
        assert walks == [5, 2 + 3 + 2]  # both ends of the one that was caught
    assert_nothing_recorded()


def test_ports_that_are_left_alone(backend: Backend, cgroup: Path) -> None:
    with holder(1, through=within(cgroup)) as inside:
        alone = Catch(JOB.id, "mltcp", ports=(inside.port,))
        with catching(backend, {cgroup: alone}) as catcher:
            inside.ask("connect")
            assert inside.ccs() == [FIRST_CC] * 2
            catcher.set({cgroup: Catch(JOB.id, "mltcp", lowest_port=65535)})
            inside.ask("connect")
            assert inside.ccs() == [FIRST_CC] * 3
            catcher.set({cgroup: Catch(JOB.id, choices={"cubic": "mltcp_cubic"})})
            inside.ask("connect")
            assert inside.ccs() == [FIRST_CC] * 4
            catcher.set({cgroup: Catch(JOB.id, choices={FIRST_CC: "mltcp_reno"})})
            inside.ask("connect")
            assert inside.ccs() == [FIRST_CC] * 4 + ["mltcp_reno"]
            catcher.set({})
            inside.ask("connect")
            assert inside.ccs()[-1] == FIRST_CC
        detach(job="seven")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.1.1"])
def test_connections_within_the_host_are_left_unless_told(
    backend: Backend, cgroup: Path, address: str
) -> None:
    with (
        holder(1, address, through=within(cgroup)) as inside,
        catching(backend, {cgroup: Catch(JOB.id, "mltcp", stays_here=False)}) as catcher,
    ):
        inside.ask("connect")
        assert inside.ccs() == [FIRST_CC] * 2
        catcher.set({cgroup: Catch(JOB.id, "mltcp")})
        inside.ask("connect")
        assert inside.ccs() == [FIRST_CC] * 2 + ["mltcp"]
        detach(job="seven")


@pytest.mark.parametrize("name", ["mltcp", "mltcp_reno"])
def test_a_cgroup_that_is_made_again_is_caught_again(
    backend: Backend, cgroup: Path, name: str
) -> None:
    """Its rule may be the same or another one."""
    with catching(backend, {cgroup: Catch(JOB.id, "mltcp")}) as catcher:
        cgroup.rmdir()
        cgroup.mkdir()
        catcher.set({cgroup: Catch(JOB.id, name)})
        with holder(1, through=within(cgroup)) as inside:
            assert inside.ccs() == [name]
            detach(job="seven")
        cgroup.rmdir()
        catcher.set({cgroup: Catch(JOB.id, name)})
        assert catcher.cgroups == []
        cgroup.mkdir()


def test_refused_cgroup_does_not_keep_others_from_being_caught(
    backend: Backend, cgroup: Path, tmp_path: Path
) -> None:
    rule = Catch(JOB.id, "mltcp")
    with catching(backend, {}) as catcher, holder(1, through=within(cgroup)) as inside:
        with pytest.raises(HostError, match=str(tmp_path)):
            catcher.set({tmp_path: rule, cgroup: rule})
        assert catcher.cgroups == [cgroup]
        inside.ask("connect")
        assert inside.ccs() == [FIRST_CC, "mltcp"]
        detach(job="seven")


def test_what_an_unload_by_force_leaves_is_put_back(backend: Backend, cgroup: Path) -> None:
    with holder(1, through=within(cgroup)) as inside:
        with catching(backend, {cgroup: Catch(JOB.id, "mltcp")}):
            inside.ask("connect")
        unload_by_force(backend)
        assert FIRST_PIN.exists()
        assert inside.ccs() == [FIRST_CC, "mltcp"]
        assert [each.outcome for each in detach()] == ["restored"] * 2  # both ends
        assert inside.ccs() == [FIRST_CC] * 2


def test_what_they_ran_before_is_forgotten_with_the_last_of_them(
    backend: Backend, cgroup: Path
) -> None:
    with holder(1, through=within(cgroup)) as inside:
        attach(connections(inside), JOB, "mltcp", backend)
        assert FIRST_PIN.exists()
        inside.ask("choose", 0, FIRST_CC)  # nobody detaches it, and it is none of ours any more
        backend.unload()
        assert not FIRST_PIN.exists()
        assert kernel_sockets().held()
        assert not FIRST_PIN.exists()  # looking leaves nothing
        backend.load()
        attach(connections(inside), JOB, "mltcp", backend)
        unload_by_force(backend)
        run = with_read_only_pins("detach", "seven")
        assert (run.returncode, inside.ccs()) == (0, [FIRST_CC]), run
        assert FIRST_PIN.exists()
        detach()
        assert not FIRST_PIN.exists()


def test_declining_process_and_sockets_beside_it_stay_unchanged(
    backend: Backend, cgroup: Path, tmp_path: Path
) -> None:
    off = {"MLTCP_ATTACH": "off"}
    with (
        holder(1, through=within(cgroup), **off) as declining,
        holder(1, through=within(cgroup)) as inside,
        agent(tmp_path, RULES.format(cgroup.name, "")) as running,
    ):
        wait_for(lambda: inside.ccs() == ["mltcp"], "the other one")
        declining.ask("connect")
        inside.ask("connect")
        wait_for(lambda: inside.ccs() == ["mltcp"] * 2, "its next one")
        assert declining.ccs() == [FIRST_CC] * 2
        assert "before their first data" not in running.said()
        views = json.loads(shown(["status", "jobs", "--mine", "--job", "caught", "--json"]))
        assert [(each["name"], each["uid"]) for each in views] == [("caught", os.geteuid())]
        assert json.loads(shown(["status", "jobs", "--mine", "--json"], user=65534)) == []
        running.stop()


def shown(arguments: list[str], user: int | None = None) -> str:
    """Run the command as that user and return its output."""
    command = [sys.executable, "-c", CODE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, user=user, check=True).stdout


RULES = "rules:\n  - {{job: caught, cgroup: {}, kinds: all{}}}\n"


def test_agent_catches_and_after_kill_detach_restores(
    backend: Backend, cgroup: Path, tmp_path: Path
) -> None:
    name = "mltcp_reno"
    with (
        holder(1, through=within(cgroup)) as inside,
        agent(tmp_path, RULES.format(cgroup.name, ", cc: observe")) as running,
    ):
        running.wait_for("are attached before their first data")
        wait_for(lambda: inside.ccs() == [name], "the first connection")
        assert inside.ask("churn", 100)["connected"] == {name: 100}
        inside.ask("connect")
        assert inside.ccs() == [name] * 2
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()
        # The kernel frees what a process had attached a moment after its end.
        wait_for(
            lambda: inside.ask("churn", 10)["connected"] == {FIRST_CC: 10}, "the program's end"
        )
        assert {each.outcome for each in detach(job="caught")} == {"restored"}
        assert inside.ccs() == [FIRST_CC] * 2
    assert StateFiles().read() == []
