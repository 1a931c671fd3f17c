# SPDX-License-Identifier: BSD-2-Clause
"""Finding processes on this host, and the commands ps, attach and detach as people use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import holder, namespace
from support.holding_process import FIRST_CC
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.native.requirements import may_miscount
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.selection import Target, select
from mltcp_tools.live.attach.sockets import sockets, sockets_of
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


def test_by_the_port_at_the_other_end() -> None:
    with holder(1) as held:
        port = sockets(process(held.pid))[1].local[1]
        assert select(Target(ports=(port,))) == []  # a connection's own local one means nothing
        found = select(Target(ports=(held.port,), pids=(held.pid,)))
        assert [each.pid for each in found] == [held.pid]


def test_by_cgroup(tmp_path: Path) -> None:
    line = Path("/proc/self/mountinfo").read_text()
    if "- cgroup2 " not in line:
        pytest.skip("no cgroup2 is mounted")
    (mount,) = [each.split(" ")[4] for each in line.splitlines() if "- cgroup2 " in each][:1]
    group = Path(mount) / f"mltcp-test-{os.getpid()}.scope"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error.strerror}")
    try:
        with holder(1) as held:
            (group / "cgroup.procs").write_text(str(held.pid))
            assert process(held.pid).cgroup == f"/{group.name}"
            for name in (group.name, "mltcp-test-*.scope", f"/{group.name}"):
                assert [each.pid for each in select(Target(cgroups=(name,)))] == [held.pid]
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), "the cgroup to empty")
        group.rmdir()


def test_sockets_of_processes_in_several_namespaces_at_once() -> None:
    with (
        namespace() as name,
        holder(2) as here,
        holder(3, through=("ip", "netns", "exec", name)) as there,
        holder(1, "::1") as ended,
    ):
        found = [process(each.pid) for each in (here, there, ended)]
        ended.end()
        listed, unread = sockets_of(found)
        assert unread == []
        counts = {each.pid: 0 for each in found}
        for each in listed:
            counts[each.process.pid] += 1
        assert list(counts.values()) == [3, 4, 0]
        assert {each.netns for each in listed if each.process.pid == there.pid} == {
            process(there.pid).netns
        }


def shown(mltcp: Mltcp, *target: object) -> dict[int, Any]:
    code, out, _ = mltcp("connections", "--json", *target)
    assert code == 0
    return {each["pid"]: each for each in json.loads(out)}


def test_ps_shows_training_processes_and_why(
    backend: Backend, mltcp: Mltcp, libraries: list[Path]
) -> None:
    with (
        holder(2, maps=libraries[:1], environment={"MASTER_PORT": "29999"}) as torch,
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

        assert mltcp("attach", plain.pid, "--job", "p")[0] == 0
        assert [each["job"] for each in shown(mltcp)[plain.pid]["sockets"]] == [None, "p", "p"]
        assert mltcp("detach", "p")[0] == 0
        assert plain.pid not in shown(mltcp)


def test_attach_takes_data_and_leaves_the_store_alone(
    backend: Backend, mltcp: Mltcp, libraries: list[Path]
) -> None:
    with namespace() as name:
        listener = ("ip", "netns", "exec", name)
        with holder(2, maps=libraries[:1], through=listener) as held:
            # The port is known only now; as a second process would have it in its environment.
            environment = {"MASTER_PORT": str(held.port)}
            code = (
                "import mmap, socket, sys\n"
                "with open(sys.argv[1], 'rb') as file:\n"
                "    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
                "first = socket.create_connection(('127.0.0.1', int(sys.argv[2])))\n"
                "print(flush=True); sys.stdin.read()"
            )
            with subprocess.Popen(
                [*listener, sys.executable, "-c", code, str(libraries[0]), str(held.port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | environment,
            ) as client:
                assert client.stdout is not None
                assert client.stdin is not None
                client.stdout.readline()
                code_, out, said = mltcp("attach", client.pid, "--job", "a")
                assert (code_, out) == (1, "")
                assert "Nothing to attach" in said
                code_, out, said = mltcp(
                    "attach", f"tree:{os.getpid()}", f"netns:{name}", "--job", "a"
                )
                assert code_ == 0
                assert out.count("-> mltcp, job a, switched") == 2
                assert "Job a (id 1): 2 switched." in said
                assert "Left alone: 1 store" in said
                code_, out, said = mltcp("attach", client.pid, "--job", "a", "--kind", "store")
                assert (code_, out.count("switched")) == (0, 1)
                assert mltcp("detach", "--all")[1].count("restored") == 3
                client.stdin.close()


def test_attach_and_detach_as_people_do(backend: Backend, mltcp: Mltcp) -> None:
    with holder(2) as held:
        code, out, said = mltcp(
            *("attach", held.pid, "--job", "resnet", "--total", "2.5MB", "--gap", "170ms"),
            *("--slope", 1, "--intercept", 0.5, "--shape", "concave", "--dry-run", "--json"),
        )
        assert code == 0
        assert said.rstrip("\n") == (may_miscount() if backend.name == "bpf" else "")
        planned = json.loads(out)
        assert planned["job"]["params"]["gap_s"] == 0.17
        assert [each["outcome"] for each in planned["changes"]] == ["planned"] * 2
        assert held.congestion_controls() == [FIRST_CC] * 2

        assert mltcp("attach", held.pid, "--job", "resnet", "--total", "2.5MB")[0] == 0
        code, out, said = mltcp(
            "attach", held.pid, "--job", "resnet", "--gap", "170ms", "--cc", "mltcp_reno"
        )
        assert code == 0
        assert f"{held.pid} fd {held.fds[0]} to 127.0.0.1:{held.port}: mltcp -> mltcp_reno" in out
        (job,) = backend.jobs()
        assert (job.name, job.params.total_bytes, job.params.gap_s) == ("resnet", 2_500_000, 0.17)
        assert mltcp("attach", held.pid, "--job", "resnet", "--total", "auto")[0] == 0
        assert backend.jobs()[0].params.total_bytes == 0

        code, out, said = mltcp("detach", held.pid, "--json")
        assert (code, said) == (0, "")
        assert [(each["now"], each["outcome"]) for each in json.loads(out)] == [
            (FIRST_CC, "restored")
        ] * 2
        assert mltcp("detach", "--all") == (0, "", "Detached: nothing was attached.\n")


def test_follow_attaches_later_sockets_and_ends_with_process(backend: Backend) -> None:
    code = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with holder(1) as held:
        follower = subprocess.Popen(
            [sys.executable, "-c", code, "attach", str(held.pid), "--job", "a", "--follow"],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            for count in (1, 2, 3):
                wait_for(lambda: set(held.congestion_controls()) == {"mltcp"}, "the follower")
                assert len(held.congestion_controls()) == count
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


def test_follow_waits_for_process_and_ctrl_c_keeps_it_attached(backend: Backend) -> None:
    code = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with namespace() as name:
        follower = subprocess.Popen(
            [sys.executable, "-c", code, "attach", f"netns:{name}", "--job", "a", "--follow"],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert follower.stderr is not None
            assert "waiting for one" in follower.stderr.readline()
            with holder(2, through=("ip", "netns", "exec", name)) as held:
                wait_for(lambda: held.congestion_controls() == ["mltcp"] * 2, "the follower")
                follower.send_signal(signal.SIGINT)
                _, said = follower.communicate(timeout=PATIENCE_S)
                assert (follower.returncode, "error" in said) == (0, False)
                assert held.congestion_controls() == ["mltcp"] * 2
                assert [each.outcome for each in detach(job="a")] == ["restored"] * 2
                assert held.congestion_controls() == [FIRST_CC] * 2
        finally:
            follower.kill()
            follower.wait()


def test_a_job_called_like_a_number(backend: Backend, mltcp: Mltcp) -> None:
    with holder(1) as held:
        assert mltcp("attach", held.pid, "--job", "7")[0] == 0
        code, _, said = mltcp("detach", "7")
        assert (code, "process 7 is attached" in said) == (2, True)
        assert mltcp("detach", "--job", "7")[0] == 0


def test_unload_while_attached_says_to_detach(backend: Backend, mltcp: Mltcp) -> None:
    with holder(1) as held:
        assert mltcp("attach", held.pid, "--job", "a")[0] == 0
        code, _, said = mltcp("unload")
        assert (code, "mltcp detach" in said) == (4, True)
        assert mltcp("detach", "a")[0] == 0
    assert mltcp("unload")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["attach"], 2, "Missing argument"),
        (["attach", "1"], 2, "Missing option '--job'"),
        (["attach", "4194304", "--job", "a"], 1, "No process matches 4194304"),
        (["attach", "x:y", "--job", "a"], 2, "begins with no kind of target"),
        (["attach", "port:0", "--job", "a"], 2, "not a TCP port"),
        (["attach", "PID", "--job", ""], 2, "job name ''"),
        (["attach", "PID", "--job", "a\x1b"], 2, "printable"),
        (["attach", "PID", "--job", "a", "--total", "2.5 MBit"], 2, "not a size"),
        (["attach", "PID", "--job", "a", "--gap", "170"], 2, "has no unit; write it like"),
        (["attach", "PID", "--job", "a", "--gap", "2h"], 2, "not a time"),
        (["attach", "PID", "--job", "a", "--gap", "7200s"], 2, "0 to 3600 seconds"),
        (["attach", "PID", "--job", "a", "--slope", "65"], 2, "not in the range"),
        (["attach", "PID", "--job", "a", "--cc", "bbr"], 2, "is not one of"),
        (["attach", "PID", "--job", "a", "--slope", "2", "--cc", "observe"], 2, "changes nothing"),
        (["attach", "PID", "--job", "a", "--kind", "gloo"], 1, "--kind all"),
        (["attach", "PID", "--job", "a", "--follow", "--json"], 2, "--follow can't be combined"),
        (["detach"], 2, "say what to detach"),
        (["detach", "a", "--all"], 2, "say what to detach"),
        (["detach", "absent"], 2, "nothing is"),
        (["detach", "1"], 2, "No socket of process 1"),
        (["connections", "4194304"], 1, "No process matches 4194304"),
    ],
)
def test_mistakes_are_explained_in_one_line(
    backend: Backend, mltcp: Mltcp, arguments: list[str], code: int, words: str
) -> None:
    with holder(1) as held:
        given = [str(held.pid) if each == "PID" else each for each in arguments]
        found, out, said = mltcp(*given)
        assert (found, out) == (code, "")
        assert words in said
        assert said.count("\n") == 1
        assert held.congestion_controls() == [FIRST_CC]
    assert backend.jobs() == []
    assert not STATE_DIR.exists() or not list(STATE_DIR.iterdir())


def test_names_of_others_can_not_drive_the_terminal(mltcp: Mltcp) -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, "\x1b[2J\n9999 fake"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as odd:
        assert odd.stdout is not None
        assert odd.stdin is not None
        odd.stdout.readline()
        out = mltcp("connections", odd.pid)[1]
        odd.stdin.close()
    assert "\x1b" not in out
    assert "?[2J?9999 fake" in out
