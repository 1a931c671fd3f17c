# SPDX-License-Identifier: BSD-2-Clause
"""Attaching without the privileges it takes, and with files nobody can trust."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import Holder, holder
from support.holding_process import FIRST_CC

from mltcp_tools.base.errors import HostError, MltcpError, UsageError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.state import STATE_DIR, StateFiles

CODE = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"

WITHOUT_ANY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
WITHOUT_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all")
WITHOUT_NET_ADMIN = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-all")
IN_USER_NAMESPACE = ("unshare", "--user", "--map-root-user")


backend = backend_fixture(fresh_and_loaded)


@pytest.fixture
def held() -> Iterator[Holder]:
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
    backend: Backend, held: Holder, through: Sequence[str], missing: list[str], dry_run: list[str]
) -> None:
    if backend.name == "bpf" and through == WITHOUT_PTRACE:
        return  # it isn't needed: see test_attach_kernel.py
    before = sorted(Path("/run/mltcp").rglob("*"))
    run = mltcp("attach", held.pid, "--job", "a", *dry_run, through=through)
    assert run.returncode == HostError.exit_code
    assert run.stdout == ""
    assert run.stderr.startswith("mltcp: error: Nothing was changed: ")
    assert run.stderr.count("\n") == 1
    for words in missing:
        assert words in run.stderr
    assert held.congestion_controls() == [FIRST_CC] * 2
    assert backend.jobs() == []
    assert sorted(Path("/run/mltcp").rglob("*")) == before


def test_detaching_without_privileges_changes_nothing(backend: Backend, held: Holder) -> None:
    assert mltcp("attach", held.pid, "--job", "a").returncode == 0
    run = mltcp("detach", "a", through=WITHOUT_ANY)
    assert run.returncode == HostError.exit_code
    assert "CAP_NET_ADMIN and CAP_SYS_PTRACE" in run.stderr
    if backend.name == "bpf":
        assert held.congestion_controls() == ["mltcp"] * 2
        assert [each.outcome for each in detach(job="a")] == ["restored"] * 2
        return
    run = mltcp("detach", "a", through=WITHOUT_PTRACE)  # notices at the sockets
    assert run.returncode == MltcpError.exit_code
    assert run.stdout.count("failed: ") == 2
    assert "CAP_SYS_PTRACE" in run.stdout
    assert "stay recorded" in run.stderr
    assert held.congestion_controls() == ["mltcp"] * 2
    assert len(StateFiles().read()[0].sockets) == 2
    assert [each.outcome for each in detach(job="a")] == ["restored"] * 2


def test_another_users_files_stay_closed_to_an_unprivileged_user(
    backend: Backend, held: Holder
) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    if subprocess.run([*nobody, sys.executable, "-c", "import click"]).returncode:
        nobody = WITHOUT_ANY  # this interpreter is out of that user's reach
    for arguments in (("attach", held.pid, "--job", "a"), ("detach", "--all")):
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


@pytest.fixture
def planted(backend: Backend, held: Holder) -> Iterator[Path]:
    """The state file of an attached job, for a test to spoil."""
    assert mltcp("attach", held.pid, "--job", "a").returncode == 0
    path = STATE_DIR / "job-1.json"
    good = path.read_bytes()
    yield path
    # What the true file says must still work.
    if STATE_DIR.is_symlink():
        STATE_DIR.unlink()
    shutil.rmtree(STATE_DIR, ignore_errors=True)
    STATE_DIR.mkdir(mode=0o700)
    path.write_bytes(good)
    path.chmod(0o600)
    assert [each.outcome for each in detach(job="a")] == ["restored"] * 2


def spoil_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere.json")
    path.symlink_to(path.parent.parent / "elsewhere.json")


def spoil_owner(path: Path) -> None:
    os.chown(path, 65534, 65534)


def spoil_mode(path: Path) -> None:
    path.chmod(0o620)


def spoil_hard_link(path: Path) -> None:
    (path.parent.parent / "elsewhere.json").hardlink_to(path)


def spoil_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def spoil_id(path: Path) -> None:
    path.rename(path.with_name("job-2.json"))


def spoil_content(path: Path) -> None:
    document = json.loads(path.read_text())
    document["sockets"][0]["pid"] = -1
    path.write_text(json.dumps(document))


def spoil_folder_link(path: Path) -> None:
    shutil.copytree(path.parent, path.parent.parent / "elsewhere")
    shutil.rmtree(path.parent)
    path.parent.symlink_to(path.parent.parent / "elsewhere")


def spoil_folder_owner(path: Path) -> None:
    os.chown(path.parent, 65534, 65534)


def spoil_folder_mode(path: Path) -> None:
    path.parent.chmod(0o770)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (spoil_link, "symbolic link"),
        (spoil_owner, "belongs to user 65534"),
        (spoil_mode, "users other than its owner"),
        (spoil_hard_link, "not a plain file"),
        (spoil_pipe, "not a plain file"),
        (spoil_id, "it is about job 1"),
        (spoil_content, "pid is -1"),
        (spoil_folder_link, "a link or a file"),
        (spoil_folder_owner, "belongs to user 65534"),
        (spoil_folder_mode, "users other than its owner may enter"),
    ],
)
def test_a_state_file_that_is_not_ours_is_refused(
    planted: Path, held: Holder, spoil: object, why: str
) -> None:
    assert callable(spoil)
    try:
        spoil(planted)
        for arguments in (("detach", "--all"), ("attach", held.pid, "--job", "b")):
            run = mltcp(*arguments)
            assert run.returncode == HostError.exit_code, run
            assert "can't be trusted" in run.stderr
            assert why in run.stderr
            assert run.stderr.count("\n") == 1
        run = mltcp("connections", held.pid)
        assert run.returncode == 0
        assert why in run.stderr
        assert held.congestion_controls() == ["mltcp"] * 2
    finally:
        elsewhere = Path("/run/mltcp/elsewhere")
        elsewhere.with_suffix(".json").unlink(missing_ok=True)
        shutil.rmtree(elsewhere, ignore_errors=True)


def test_the_files_are_closed_to_others(planted: Path) -> None:
    assert (planted.stat().st_mode & 0o7777, planted.stat().st_uid) == (0o600, 0)
    assert (planted.parent.stat().st_mode & 0o7777, planted.parent.stat().st_uid) == (0o700, 0)


def test_a_file_of_another_boot_means_nothing(planted: Path, held: Holder) -> None:
    document = json.loads(planted.read_text())
    document["boot_id"] = "00000000-0000-0000-0000-000000000000"
    planted.write_text(json.dumps(document))
    run = mltcp("detach", "a")
    assert (run.returncode, "nothing is" in run.stderr) == (UsageError.exit_code, True)
    assert held.congestion_controls() == ["mltcp"] * 2
