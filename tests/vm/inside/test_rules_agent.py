# SPDX-License-Identifier: BSD-2-Clause
"""An agent with the kernel module has rules for the cgroups that it follows, and leaves none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import attach, holder
from netns.trainings import agent, pause
from support.waiting import wait_for
from vm.cgroups import cgroup, inside
from vm.hostile import exchange
from vm.loading import connected, pair

from mltcp_tools.base.errors import BusyError
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.backends.kmod import KmodBackend
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.sockets import CAN_SEND, sockets_of
from mltcp_tools.live.attach.state import StateFiles

pytestmark = pytest.mark.full  # agents start slowly in a VM
backend = backend_fixture(fresh_and_loaded, ["kmod"])

RULES = "rules:\n  - {{job: caught, cgroup: {}, kinds: all, burst_bytes: 20kB, gap: 1ms{}}}\n"
COUNT = 50


@pytest.mark.parametrize("more", ["", ", cc: observe"])
def test_the_agents_rules_catch_and_end_with_it(
    backend: Backend, tmp_path: Path, more: str
) -> None:
    assert isinstance(backend, KmodBackend)
    with cgroup("mltcp-followed") as (path, folder):
        within = ("sh", "-c", f'echo $$ >{path}/cgroup.procs; exec "$@"', "sh")
        with (
            holder(1, through=within) as held,
            agent(tmp_path, RULES.format(path.name, more)) as running,
            backend.iterations() as heard,
        ):
            running.wait_for("under MLTCP of /")
            ((number, job),) = backend.rules().items()
            assert number == os.fstat(folder).st_ino
            wait_for(lambda: held.ccs()[0].startswith("mltcp"), "the first one")
            pause(running.process)  # nobody looks now
            heard.poll(0)
            with inside(path):
                for _ in range(COUNT):
                    with pair("mltcp") as (sender, peer):
                        exchange(sender, peer, 1)
            found = {each.cookie for each in heard.poll(5) if each.job_id == job}
            assert len(found) == COUNT
            with inside(path):
                sender, peer = connected("mltcp")
            with sender, peer:
                own = sockets_of([process(os.getpid())])[0]
                chosen = [each for each in own if each.state in CAN_SEND]
                with pytest.raises(BusyError, match="caught -> other"):
                    attach(chosen, Job(job + 1, "other"), "mltcp", backend)
            running.process.kill()
            running.process.wait()
            assert backend.rules() == {}
            assert {each.outcome for each in detach(job="caught")} == {"restored"}
    assert StateFiles().read() == []
    assert backend.jobs() == []
