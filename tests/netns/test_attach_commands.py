# SPDX-License-Identifier: BSD-2-Clause
"""Finding processes on this host, and the commands ps, attach and detach as people use them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import FIRST_CC, holder, namespace
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.native.requirements import may_miscount
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.selection import Target, select
from mltcp_tools.live.attach.state import STATE_DIR

Mltcp = Callable[..., tuple[int, str, str]]


backend = backend_fixture(fresh_and_loaded)


@pytest.fixture
def mltcp(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mltcp:
    """Runs a command: its exit code, output and errors."""
    monkeypatch.delenv("MLTCP_DEBUG", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        return main([str(each) for each in arguments]), *capsys.readouterr()

    return run


@pytest.fixture
def libraries(tmp_path: Path) -> list[Path]:
    """Files that look like training libraries from outside."""
    paths = [tmp_path / "libtorch_cpu.so", tmp_path / "libnccl.so.2"]
    for path in paths:
        path.write_bytes(bytes(4096))
    return paths


def test_by_port_namespace_and_tree() -> None:
    with namespace() as name, holder(1, through=("ip", "netns", "exec", name)) as held:
        for target in (
            Target(ports=(held.port,)),
            Target(netns=(name,)),
            Target(netns=(f"/run/netns/{name}",)),
            Target(netns=(str(process(held.pid).netns),)),
            Target(trees=(held.pid,)),
            Target(trees=(os.getpid(),), ports=(held.port,), netns=(name,)),
        ):
            assert [each.pid for each in select(target)] == [held.pid]
        assert select(Target(ports=(held.port,), pids=(os.getpid(),))) == []


def shown(mltcp: Mltcp, *target: object) -> dict[int, Any]:
    code, out, _ = mltcp("connections", "--json", *target)
    assert code == 0
    return {each["pid"]: each for each in json.loads(out)}


def test_ps_shows_training_processes_and_why(
    backend: Backend, mltcp: Mltcp, libraries: list[Path]
) -> None:
    with (
        holder(2, maps=libraries[:1], MASTER_PORT="29999") as torch,
        holder(2, maps=libraries[1:]) as nccl,
        holder(2) as plain,
    ):
        found = shown(mltcp)
        assert plain.pid not in found
        kinds = {pid: [each["kind"] for each in found[pid]["sockets"]] for pid in found}
        assert kinds[torch.pid] == ["other", "gloo", "gloo"]
        assert kinds[nccl.pid] == ["other", "nccl-data", "nccl-data"]
        assert found[torch.pid]["command"][0] == sys.executable

        code, out, said = mltcp("connections", torch.pid, plain.pid)
        assert (code, said) == (0, "")
        assert "Gloo is in the process, NCCL isn't" in out
        assert "no training library is in the process" in out
        assert f"network namespace {process(plain.pid).netns}" in out

        assert mltcp("attach", plain.pid, "--job", "p", "--kind", "all")[0] == 0
        assert [each["job"] for each in shown(mltcp)[plain.pid]["sockets"]] == [None, "p", "p"]
        assert mltcp("detach", "p")[0] == 0
        assert plain.pid not in shown(mltcp)


def test_attach_and_detach_as_people_do(backend: Backend, mltcp: Mltcp) -> None:
    with holder(2) as held:
        attach = ("attach", held.pid, "--job", "resnet", "--kind", "all")
        code, out, said = mltcp(
            *(*attach, "--burst-bytes", "2.5MB", "--gap", "170ms"),
            *("--slope", 1, "--intercept", 0.5, "--dry-run", "--json"),
        )
        assert code == 0
        assert said.rstrip("\n") == (may_miscount() if backend.name == "bpf" else "")
        planned = json.loads(out)
        assert planned["job"]["params"]["gap_s"] == 0.17
        assert [each["outcome"] for each in planned["changes"]] == ["planned"] * 2
        assert held.ccs() == [FIRST_CC] * 2

        assert mltcp(*attach, "--burst-bytes", "2.5MB")[0] == 0
        code, out, said = mltcp(*attach, "--gap", "170ms", "--cc", "mltcp_reno")
        assert code == 0
        assert f"{held.pid} fd {held.fds[0]} to 127.0.0.1:{held.port}: mltcp -> mltcp_reno" in out
        (job,) = backend.jobs()
        assert (job.name, job.params.burst_bytes, job.params.gap_s) == ("resnet", 2_500_000, 0.17)
        assert mltcp(*attach, "--burst-bytes", "auto")[0] == 0
        assert backend.jobs()[0].params.burst_bytes == 0

        code, out, said = mltcp("detach", held.pid, "--json")
        assert (code, said) == (0, "")
        assert [(each["new"], each["outcome"]) for each in json.loads(out)] == [
            (FIRST_CC, "restored")
        ] * 2
        assert mltcp("detach", "--all") == (0, "", "Detached: nothing was attached.\n")


def test_follow_attaches_later_sockets_and_ends_with_process(backend: Backend) -> None:
    code = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with holder(1) as held:
        follower = subprocess.Popen(
            [
                sys.executable,
                "-c",
                code,
                "attach",
                str(held.pid),
                "--job=a",
                "--kind=all",
                "--follow",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for count in (1, 2, 3):
                wait_for(lambda: set(held.ccs()) == {"mltcp"}, "the follower")
                assert len(held.ccs()) == count
                held.ask("connect")
            held.end()
            _, said = follower.communicate(timeout=PATIENCE_S)
        finally:
            follower.kill()
            follower.wait()
    assert follower.returncode == 0
    assert "a has ended" in said
    assert backend.jobs() == []
    assert not list(STATE_DIR.iterdir())


def test_a_job_called_like_a_number(backend: Backend, mltcp: Mltcp) -> None:
    with holder(1) as held:
        assert mltcp("attach", held.pid, "--job", "7", "--kind", "all")[0] == 0
        code, _, said = mltcp("detach", "7")
        assert (code, "process 7 is attached" in said) == (2, True)
        assert mltcp("detach", "--job", "7")[0] == 0


MISTAKES = [
    (["attach"], 2, "Missing argument"),
    (["attach", "4194304", "--job", "a"], 1, "No process matches 4194304"),
    (["attach", "x:y", "--job", "a"], 2, "begins with no kind of target"),
    (["attach", "PID", "--kind", "all", "--job", "a\x1b"], 2, "printable"),
    (["attach", "PID", "--job", "a", "--slope", "2", "--cc", "observe"], 2, "changes nothing"),
    (["attach", "PID", "--job", "a", "--kind", "gloo"], 1, "--kind all"),
    (["attach", "PID", "--job", "a", "--follow", "--json"], 2, "--follow can't be combined"),
    (["detach", "a", "--all"], 2, "give exactly one"),
    (["detach", "absent"], 2, "nothing is"),
    (["detach", "1"], 2, "No socket of process 1"),
]


def test_mistakes_are_explained_in_one_line(backend: Backend, mltcp: Mltcp) -> None:
    with holder(1) as held:
        for arguments, code, words in MISTAKES:
            given = [str(held.pid) if each == "PID" else each for each in arguments]
            found, out, said = mltcp(*given)
            assert (found, out, said.count("\n")) == (code, "", 1), given
            assert words in said
            assert held.ccs() == [FIRST_CC]
    assert backend.jobs() == []
    assert not STATE_DIR.exists() or not list(STATE_DIR.iterdir())
