# SPDX-License-Identifier: BSD-2-Clause
"""Names of jobs that follow from their processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.live.agent import naming
from mltcp_tools.live.agent.naming import (
    check_template,
    declines,
    is_template,
    name_of,
    place_of,
    unclear,
    variables,
)
from mltcp_tools.live.attach.environment import Environments
from mltcp_tools.live.attach.processes import Process, process

PODS = "/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice/cri-x.scope"

NONE = Environments()


def seen(process: Process, *names: str) -> Environments:
    found = Environments()
    found.see([process], names or ["MLTCP_ATTACH"])
    return found


@pytest.mark.parametrize(
    ("template", "cgroup", "name"),
    [
        ("plain", "/", "plain"),
        (r"{cgroup:job_(\d+)}", "/slurm/uid_7/job_123/step_0", "123"),
        (r"{cgroup:job_(\d+)}", "/system.slice", ""),
        ("{cgroup:(x)?/}", "/", ""),
        (r"{cgroup:.*}", "/" + "n" * 64, ""),  # longer than names are
        ("{pod}", PODS, "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"),
        ("{pod}", "/", ""),
    ],
)
def test_names(template: str, cgroup: str, name: str) -> None:
    assert check_template(template) == template
    assert is_template(template) == ("{" in template)
    own = dataclasses.replace(process(os.getpid()), cgroup=cgroup, more_cgroups=())
    assert name_of(template, own, NONE) == name
    # Some systems have the job's cgroup in one hierarchy of version 1, and longer paths in others.
    hybrid = dataclasses.replace(own, cgroup="/system.slice/a.service", more_cgroups=(cgroup,))
    assert name_of(template, hybrid, NONE) == name or "{cgroup:.*}" in template


STEP = "/system.slice/slurmstepd.scope/job_123/step_0"


@pytest.mark.parametrize(
    ("template", "cgroup", "place"),
    [
        (r"{cgroup:job_(\d+)}", f"{STEP}/slurm", STEP.removesuffix("/step_0")),
        (r"{cgroup:job_(\d)\d.*}", f"{STEP}/user/task_0", STEP.removesuffix("/step_0")),
        (r"{cgroup:job_\d+}", STEP, STEP.removesuffix("/step_0")),
        ("{pod}", PODS, PODS.removesuffix("/cri-x.scope")),
        (r"{cgroup:job_(\d+)}", "/system.slice", ""),
    ],
)
def test_place_is_the_cgroup_that_gives_the_name(template: str, cgroup: str, place: str) -> None:
    own = dataclasses.replace(process(os.getpid()), cgroup=cgroup, more_cgroups=())
    assert place_of(template, own) == place


@contextlib.contextmanager
def started(**environment: str) -> Iterator[Process]:
    """A process with these variables in its environment besides this one's."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=os.environ | environment, stdin=pipe, stdout=pipe) as child:
        assert child.stdin
        assert child.stdout
        child.stdout.readline()
        yield process(child.pid)
        child.stdin.close()


def test_the_environment_of_the_process() -> None:
    template = "{env:SLURM_JOB_ID}-{env:SLURM_JOB_IDS}"
    with started(SLURM_JOB_ID="77", SLURM_JOB_IDS="78") as found:
        assert name_of(template, found, seen(found, *variables(template))) == "77-78"
        assert name_of(template, found, Environments()) == ""
    assert name_of(template, found, seen(found, *variables(template))) == ""


@pytest.mark.parametrize(
    ("said", "opt_in", "left_alone"),
    [
        (None, False, True),
        (None, True, True),
        ("", False, False),
        ("", True, True),
        ("off", False, True),
        ("on", False, False),
        ("on", True, False),
        ("perhaps", True, True),
    ],
)
def test_who_wants_to_be_left_alone(said: str | None, opt_in: bool, left_alone: bool) -> None:
    assert declines(said, opt_in) == left_alone
    assert unclear(said) == (said == "perhaps")


@pytest.mark.parametrize("word", ["off", "OFF", "False", "no", "0", "on", "perhaps", ""])
def test_slurms_prolog_understands_what_the_agent_does(word: str, tmp_path: Path) -> None:
    prolog = Path(naming.__file__).with_name("slurm") / "task-prolog"
    said = {"SLURM_JOB_ID": "7", "MLTCP_ATTACH": word}
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent.sock"))
        environment = said | {"MLTCP_AGENT_SOCKET": str(tmp_path / "agent.sock")}
        told = subprocess.run(["sh", prolog], env=environment, capture_output=True, text=True)
    with started(**said) as found:
        declined = declines(seen(found).get(found, "MLTCP_ATTACH"), False)
        assert ("print mltcp" not in told.stdout) == declined


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("{host}", "none of"),
        ("{pod:x}", "none of"),
        ("{cgroup:(}", "not a regular expression"),
        ("{cgroup:(a)(b)}", "2 groups"),
        ("{cgroup:x", "nothing closes"),
    ],
)
def test_what_is_no_template(wrong: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_template(wrong)
