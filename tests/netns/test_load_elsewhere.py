# SPDX-License-Identifier: BSD-2-Clause
"""Loads in a mount namespace with pins of its own, loads that are made sure of, and the check."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from netns.attached import JOB, connections, outcomes
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import FIRST_CC, attach, holder

from mltcp_tools.base.errors import BusyError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends import struct_ops
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.backends.pins import PIN_ROOT
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.observe.follower_state import FollowerState

pytestmark = pytest.mark.bpf
backend = backend_fixture(fresh_and_loaded, ["bpf"])


@pytest.fixture(autouse=True)
def _nobody_was_killed() -> None:
    """Other tests kill agents."""
    with FollowerState():  # which clears up
        pass


CODE = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
ELSEWHERE = ("unshare", "--mount", "sh", "-c", 'mount -t bpf bpf /sys/fs/bpf && exec "$@"', "sh")


def elsewhere(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `mltcp` where another file system of pins is mounted."""
    command = [*ELSEWHERE, sys.executable, "-c", CODE, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_load_from_elsewhere_replaces_nothing_and_is_named(backend: Backend) -> None:
    with holder(1) as held:
        attach(connections(held), JOB, "mltcp", backend)
        run = elsewhere("load")
        assert (run.returncode, "--replace" in run.stderr) == (BusyError.exit_code, True), run
        assert "somebody" in elsewhere("status").stdout
        run = elsewhere("attach", str(held.pid), "--job", "b", "--kind", "all")
        assert (run.returncode, "somebody" in run.stderr) == (BusyError.exit_code, True), run
        assert [flow.job_id for flow in backend.flows()] == [JOB.id]
        assert backend.status().details["elsewhere"] == []
        assert [each.outcome for each in detach()] == ["restored"]


def test_a_load_from_elsewhere_can_be_taken_over(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    for pin in PIN_ROOT.iterdir():
        pin.unlink()
    PIN_ROOT.rmdir()
    with holder(1) as held:
        held.ask("choose", 0, "mltcp")
        with pytest.raises(BusyError, match="sees another file system"):
            backend.load()
        assert main(["status", "--check"]) == 11
        assert main(["load", "--replace"]) == 0
        assert main(["status", "--check"]) == 0
        capsys.readouterr()
        assert [flow.congestion_control for flow in backend.flows()] == ["mltcp"]
        held.ask("choose", 0, FIRST_CC)


@contextmanager
def orphan(backend: Backend) -> Iterator[None]:
    """A socket that runs the programs of an earlier load."""
    with holder(1) as held:
        assert outcomes(attach(connections(held), JOB, "mltcp", backend)) == ["switched"]
        backend.unload(force=True)
        backend.load()
        yield
        assert [each.outcome for each in detach()] == ["restored"]
        assert held.ccs() == [FIRST_CC]


def test_ensuring_a_load_replaces_only_what_is_orphaned(
    backend: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def registered() -> list[int]:
        return [found.id for found, is_registered in struct_ops.our_maps() if is_registered]

    before = registered()
    assert main(["load", "--ensure"]) == 0
    assert registered() == before
    with orphan(backend):
        assert main(["status", "--check"]) == 12
        assert "earlier load" in capsys.readouterr().out
        assert main(["load", "--ensure"]) == 0
        assert main(["status", "--check"]) == 0
        assert not set(registered()) & set(before)
        assert [flow.job_id for flow in backend.flows()] == [JOB.id]
    before = registered()
    monkeypatch.setattr(struct_ops, "build_here", lambda: "0.1.0+ANOTHER")
    assert main(["status", "--check"]) == 11
    assert main(["load", "--ensure"]) == 0
    assert not set(registered()) & set(before)
    assert main(["status", "--check"]) == 0
    monkeypatch.undo()
    backend.unload()
    assert main(["status", "--check"]) == 10
    assert main(["load", "--ensure"]) == 0


def test_ensuring_a_load_takes_in_what_an_unload_by_force_left(backend: Backend) -> None:
    with holder(1) as held:
        assert outcomes(attach(connections(held), JOB, "mltcp", backend)) == ["switched"]
        backend.unload(force=True)
        assert main(["load", "--ensure"]) == 0
        assert main(["status", "--check"]) == 0
        assert [flow.job_id for flow in backend.flows()] == [JOB.id]
        assert [each.outcome for each in detach()] == ["restored"]
        assert held.ccs() == [FIRST_CC]


def test_maps_of_another_layout_are_replaced(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    (PIN_ROOT / "mltcp_jobs").unlink()
    shape = ("type", "hash", "key", "4", "value", "8", "entries", "16", "name", "mltcp_jobs")
    subprocess.run(["bpftool", "map", "create", str(PIN_ROOT / "mltcp_jobs"), *shape], check=True)
    assert main(["status", "--check"]) == 11
    assert main(["load", "--ensure"]) == 0
    assert main(["status", "--check"]) == 0
    assert backend.jobs() == []


def test_a_killed_follower_is_told(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    follower_state = Path("/run/mltcp/followers/4194303.json")
    follower_state.parent.mkdir(parents=True, exist_ok=True)
    follower_state.write_text("{}")
    try:
        assert main(["status", "--check"]) == 13
        assert "4194303" in capsys.readouterr().out
        assert main(["detach", "--all"]) == 0
        assert main(["status", "--check"]) == 0
    finally:
        follower_state.unlink(missing_ok=True)
