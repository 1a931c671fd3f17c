# SPDX-License-Identifier: BSD-2-Clause
"""Reading the process table, and what the words for a target mean."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.processes import (
    PID_MAX,
    Process,
    _cgroups,
    process,
)
from mltcp_tools.live.attach.selection import Target, select


def test_a_process_that_has_ended_even_if_nobody_noticed_yet():
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read()  # closed when it ends
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(MltcpError, match=f"no process {child.pid}"):
            process(child.pid)


def test_a_name_with_parentheses_and_blanks(tmp_path):
    program = tmp_path / "a) S (b 1"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as child:
        try:
            while not (found := process(child.pid)).command:
                pass  # the kernel shows none while it sets up the new program
        finally:
            child.kill()
    assert (found.name, found.ppid) == ("a) S (b 1", os.getpid())
    assert found.command[1] == "60"


def test_words_for_a_target():
    words = ["12", "tree:34", "port:29500", "cgroup:job_1", "netns:blue", "command:^a b$", "t.py"]
    words += ["user:root", "user:1000"]
    assert Target.parse(words) == Target(
        pids=(12,),
        trees=(34,),
        ports=(29500,),
        cgroups=("job_1",),
        netns=("blue",),
        patterns=("^a b$", "t.py"),
        users=(0, 1000),
    )
    assert Target.parse(["12", "13"]) == Target(pids=(12, 13))
    assert str(Target.parse(["tree:34", "t.py", "cgroup:job_1"])) == (
        "tree:34 command:t.py cgroup:job_1"
    )
    assert Target.parse(["command:a:b"]) == Target(patterns=("a:b",))
    for word in ("trainer:29500", "a.b:c"):
        with pytest.raises(UsageError, match="port:29500, and a pattern with a colon"):
            Target.parse([word])
    assert Target.parse([]) == Target()


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("0", "not a process id"),
        (str(PID_MAX + 1), "not a process id"),
        ("9" * 5000, "not a process id"),
        ("port:0", "not a TCP port"),
        ("port:http", "not a port"),
        ("(", "not a regular expression"),
        ("command:", "means nothing"),
        ("user:no-such-user", "no user"),
        ("user:", "no user"),
        ("user:" + "9" * 10, "not a user id"),
        ("", "means nothing"),
    ],
)
def test_words_that_mean_nothing(word, why):
    with pytest.raises(UsageError, match=why):
        Target.parse([word])


@pytest.mark.parametrize(
    ("text", "cgroup", "more"),
    [
        ("0::/user.slice/a.scope\n", "/user.slice/a.scope", ()),
        ("0::/\n", "/", ()),
        (
            "5:freezer:/slurm/job_1\n4:memory:/other/and/longer\n3:cpu:/\n0::/\n",
            "/other/and/longer",
            ("/slurm/job_1",),
        ),
        (
            "5:freezer:/slurm/job_1\n4:memory:/a:b\n3:cpu:/a:b\n0::/v2\n",
            "/v2",
            ("/slurm/job_1", "/a:b"),
        ),
    ],
)
def test_cgroups_of_either_version(text, cgroup, more):
    assert _cgroups(text) == [cgroup, *more]


def a_process(pid=1, command=(), cgroup="/", netns=1, ppid=0, uid=0, more=()):
    return Process(pid, 1, ppid, uid, "name", command, cgroup, netns, more)


def test_each_kind_of_condition_must_fit():
    base = PID_MAX - 10  # none of those that patterns leave out
    one = a_process(base + 1, ("python", "train.py"), "/slurm/job_12/step_0")
    two = a_process(base + 2, ("python", "serve.py"), "/slurm/job_12/step_1")
    three = a_process(base + 3, ("python", "train.py"), "/slurm/job_13/step_0", netns=2, uid=5)

    def chosen(**conditions):
        return [each.pid - base for each in select(Target(**conditions), [one, two, three])]

    assert chosen() == []
    assert chosen(pids=(base + 1, base + 3)) == [1, 3]
    assert chosen(patterns=("train",)) == [1, 3]
    assert chosen(patterns=("^python serve", "nothing")) == [2]
    assert chosen(cgroups=("job_12",)) == [1, 2]
    assert chosen(cgroups=("job_*",)) == [1, 2, 3]
    assert chosen(cgroups=("job_1",)) == []
    assert chosen(cgroups=("/slurm/job_12",)) == [1, 2]
    assert chosen(cgroups=("/slurm/job_1",)) == []
    assert chosen(cgroups=("/slurm/job_12/", "step_0")) == [1, 2, 3]
    assert chosen(cgroups=("/",)) == [1, 2, 3]
    assert chosen(netns=("2",)) == [3]
    four = a_process(base + 4, (), "/system.slice/slurmd", more=("/other/longer", "/slurm/job_14"))
    assert select(Target(cgroups=("job_14",)), [one, four]) == [four]
    assert select(Target(cgroups=("job_*", "slurmd")), [one, four]) == [one, four]
    assert chosen(patterns=("train",), users=(0, 6)) == [1]
    assert chosen(pids=(base + 1, base + 2), patterns=("train",), cgroups=("job_12",)) == [1]


def test_a_pattern_does_not_mean_who_asks():
    code = (
        "import sys; from mltcp_tools.live.attach.selection import Target, select;"
        "print([each.command for each in select(Target(patterns=(sys.argv[1],)))])"
    )
    word = "only-in-this-command-line"
    run = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {word}; true', sys.executable, code],
        capture_output=True,
        text=True,
    )
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (None, ["lacks CAP_SYS_PTRACE; run"]),
        (1, ["lacks CAP_SYS_PTRACE (kernel.yama.ptrace_scope is 1)"]),
        (3, ["ptrace_scope is 3", "until a reboot"]),
    ],
)
def test_the_ptrace_scope_is_named(tmp_path, monkeypatch, scope, words):
    path = tmp_path / "ptrace_scope"
    if scope is not None:
        path.write_text(f"{scope}\n")
    monkeypatch.setattr(privileges, "_PTRACE_SCOPE", path)
    monkeypatch.setattr(privileges.facts, "effective_capabilities", set)
    for each in words:
        assert each in privileges.reason_for_refusal()
