# SPDX-License-Identifier: BSD-2-Clause
"""The cgroups of which the kernel may be told to attach all."""

from __future__ import annotations

import os

import pytest

from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.agent.catching import _catch, _part
from mltcp_tools.live.agent.followed import Followed
from mltcp_tools.live.agent.rules import parse_config
from mltcp_tools.live.agent.watchlist import Watched
from mltcp_tools.live.attach.environment import Environments
from mltcp_tools.live.attach.processes import Process, process

SLURM = "/slurm/uid_0/job_7/step_0"
TASK = "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
SERVICE = "/system.slice/slurmd.service"


@pytest.mark.parametrize(
    ("rule", "cgroups", "part"),
    [
        (r"{job: a, cgroup: ['job_*']}", (SLURM,), "/slurm/uid_0/job_7"),
        (r"{job: '{cgroup:job_(\d+)}', cgroup: ['job_*']}", (SLURM,), SLURM),
        (r"{job: '{cgroup:job_(\d+)}', cgroup: ['job_*']}", (SLURM, "/other"), SLURM),
        # Slurm's own manager of the step is beside its tasks there.
        (r"{job: '{cgroup:job_(\d+)}', cgroup: ['task_*']}", (TASK,), TASK),
        # The job is in a hierarchy of v1; slurmd's cgroup of v2 has every job of the host.
        (r"{job: a, cgroup: ['job_*']}", (SERVICE, SLURM), ""),
        (r"{job: '{cgroup:job_(\d+)}', cgroup: ['job_*']}", (SERVICE, SLURM), ""),
        (r"{job: '{cgroup:job_(\d+)}', cgroup: ['*']}", (SERVICE, SLURM), ""),
        (r"{job: a, cgroup: ['job_*'], command: [x]}", (SLURM,), ""),
    ],
)
def test_whatever_is_in_it_is_the_jobs(rule: str, cgroups: tuple[str, ...], part: str) -> None:
    (found,) = parse_config(f"rules:\n  - {rule}\n", "agent.yaml").rules
    process = Process(2**22, 1, 1, 0, "rank", ("rank",), cgroups[0], 1, cgroups[1:])
    assert _part(Watched(process, found), Environments()) == part


@pytest.mark.parametrize(("kinds", "stays_here"), [("", False), (", kinds: all", True)])
def test_connections_within_the_host_take_kinds_all(kinds: str, stays_here: bool) -> None:
    text = f"rules:\n  - {{job: a, cgroup: [b]{kinds}}}\n"
    (rule,) = parse_config(text, "agent.yaml").rules
    own = Watched(process(os.getpid()), rule, Followed(Job(1, "a"), rule, 0))
    assert _catch([own]).stays_here == stays_here
