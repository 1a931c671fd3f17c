# SPDX-License-Identifier: BSD-2-Clause
"""Attaching without the privileges it takes, and with files nobody can trust."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from netns.attached import JOB
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import FIRST_CC, holder
from netns.trainings import Training

from mltcp_tools.base.errors import HostError, MltcpError, UsageError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.state import STATE_DIR, AttachedJob, StateFiles

CODE = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"

WITHOUT_ANY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all")
WITHOUT_NET_ADMIN = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-all")
IN_USER_NAMESPACE = ("unshare", "--user", "--map-root-user")


backend = backend_fixture(fresh_and_loaded)


@pytest.fixture
def held() -> Iterator[Training]:
    with holder(2) as found:
        yield found


def mltcp(*arguments: object, through: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*through, sys.executable, "-c", CODE, *map(str, arguments)],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("through", "missing"),
    [
        (WITHOUT_ANY, ["CAP_NET_ADMIN and CAP_SYS_PTRACE", "sudo"]),
        (WITHOUT_NET_ADMIN, ["lacks CAP_NET_ADMIN;", "sudo"]),
        (WITHOUT_PTRACE, ["CAP_SYS_PTRACE", "sudo"]),
        (IN_USER_NAMESPACE, ["user namespace", "root of the host"]),
    ],
)
@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_unprivileged_attach_changes_nothing_and_says_why(
    backend: Backend, held: Training, through: Sequence[str], missing: list[str], dry_run: list[str]
) -> None:
    if backend.name == "bpf" and through == WITHOUT_PTRACE:
        return  # it isn't needed: see test_attach_kernel.py
    before = sorted(Path("/run/mltcp").rglob("*"))
    run = mltcp("attach", held.pid, "--job", "a", "--kind", "all", *dry_run, through=through)
    assert run.returncode == HostError.exit_code
    assert run.stdout == ""
    assert run.stderr.startswith("mltcp: error: Nothing was changed: ")
    assert run.stderr.count("\n") == 1
    for words in missing:
        assert words in run.stderr
    assert held.ccs() == [FIRST_CC] * 2
    assert backend.jobs() == []
    assert sorted(Path("/run/mltcp").rglob("*")) == before


def test_detaching_without_privileges_changes_nothing(backend: Backend, held: Training) -> None:
    assert mltcp("attach", held.pid, "--job", "a", "--kind", "all").returncode == 0
    run = mltcp("detach", "a", through=WITHOUT_ANY)
    assert run.returncode == HostError.exit_code
    assert "CAP_NET_ADMIN and CAP_SYS_PTRACE" in run.stderr
    if backend.name == "bpf":
        assert held.ccs() == ["mltcp"] * 2
        assert [each.outcome for each in detach(job="a")] == ["restored"] * 2
        return
    run = mltcp("detach", "a", through=WITHOUT_PTRACE)  # notices at the sockets
    assert run.returncode == MltcpError.exit_code
    assert run.stdout.count("failed: ") == 2
    assert "CAP_SYS_PTRACE" in run.stdout
    assert "stay recorded" in run.stderr
    assert held.ccs() == ["mltcp"] * 2
    assert len(StateFiles().read()[0].sockets) == 2
    assert [each.outcome for each in detach(job="a")] == ["restored"] * 2


def test_another_users_files_stay_closed_to_an_unprivileged_user(
    backend: Backend, held: Training
) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    if subprocess.run([*nobody, sys.executable, "-c", "import click"]).returncode:
        nobody = WITHOUT_ANY  # this interpreter is out of that user's reach
    for arguments in (("attach", held.pid, "--job", "a", "--kind", "all"), ("detach", "--all")):
        run = mltcp(*arguments, through=nobody)
        assert run.returncode == HostError.exit_code
        assert "CAP_NET_ADMIN" in run.stderr
    run = mltcp("connections", held.pid, through=nobody)
    assert (run.returncode, run.stdout) == (0, "")
    assert f"The descriptors of process {held.pid}" in run.stderr
    assert "CAP_SYS_PTRACE" in run.stderr
    assert mltcp("connections", through=nobody).returncode == 0


def test_net_admin_must_count_in_the_sockets_namespace() -> None:
    """Root of a user namespace, whose own child lives in a network namespace of the host."""
    code = (
        "import subprocess, sys; from mltcp_tools.live.attach import privileges, processes;"
        "child = subprocess.Popen(['sleep', '60']);\n"
        "try: privileges.require_over_network(processes.process(child.pid))\n"
        "finally: child.kill(); child.wait()"
    )
    run = subprocess.run(
        [*IN_USER_NAMESPACE, sys.executable, "-c", code], capture_output=True, text=True
    )
    assert "CAP_NET_ADMIN doesn't count in the network namespace" in run.stderr
    own = subprocess.run([*IN_USER_NAMESPACE, "--net", sys.executable, "-c", code])
    assert own.returncode == 0


def spoil_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def spoil_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def spoil_folder_link(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (spoil_link, "symbolic link"),
        (lambda path: os.chown(path, 65534, 65534), "belongs to user 65534"),
        (lambda path: path.chmod(0o620), "users other than its owner"),
        (lambda path: path.with_name("elsewhere").hardlink_to(path), "not a plain file"),
        (spoil_pipe, "not a plain file"),
        (lambda path: path.rename(path.with_name("job-2.json")), "it is about job 7"),
        (spoil_folder_link, "a link or a file"),
        (lambda path: os.chown(path.parent, 65534, 65534), "belongs to user 65534"),
        (lambda path: path.parent.chmod(0o770), "users other than its owner may enter"),
    ],
)
def test_state_files_that_others_can_write_are_refused(
    tmp_path: Path, spoil: Callable[[Path], object], why: str
) -> None:
    files = StateFiles(tmp_path / "attach")
    files.write(AttachedJob(JOB, "bpf", ()))
    spoil(files.directory / "job-7.json")
    with pytest.raises(HostError, match=f"can't be trusted: .*{why}"):
        files.read()


def test_untrusted_or_older_records_change_nothing(backend: Backend, held: Training) -> None:
    assert mltcp("attach", held.pid, "--job", "a", "--kind", "all").returncode == 0
    path = STATE_DIR / "job-1.json"
    good = path.read_bytes()
    assert [each.stat().st_mode & 0o7777 for each in (path, path.parent)] == [0o600, 0o700]
    path.chmod(0o620)
    for arguments in (("detach", "--all"), ("attach", held.pid, "--job", "b", "--kind", "all")):
        run = mltcp(*arguments)
        assert (run.returncode, run.stderr.count("\n")) == (HostError.exit_code, 1), run
        assert "can't be trusted" in run.stderr
    run = mltcp("connections", held.pid)
    assert (run.returncode, "can't be trusted" in run.stderr) == (0, True)
    path.chmod(0o600)
    path.write_text(json.dumps(json.loads(good) | {"boot_id": "that of another boot"}))
    run = mltcp("detach", "a")
    assert (run.returncode, "nothing is" in run.stderr) == (UsageError.exit_code, True)
    assert held.ccs() == ["mltcp"] * 2
    path.write_bytes(good)
    assert [each.outcome for each in detach(job="a")] == ["restored"] * 2
