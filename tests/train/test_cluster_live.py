"""FaPES on this host: cores are lent and reclaimed, and a killed controller harms nobody."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support import procfs
from support.waiting import wait_for

from mltcp_tools.clusters.live.controller import Controller, stop
from mltcp_tools.clusters.live.report import read, summary
from mltcp_tools.clusters.live.shares import CpuGroup
from mltcp_tools.errors import BusyError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")


def write_trace(file: Path, seconds: int) -> None:
    """Few requests, then many, then few again."""
    at = datetime(2024, 1, 1)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    for second in range(seconds):
        rate = 60 if 10 <= second < 25 else 2
        for n in range(rate):
            stamp = at + timedelta(seconds=second + n / rate)
            lines.append(f"{stamp.isoformat(sep=' ', timespec='microseconds')},64,8")
    file.write_text("\n".join(lines) + "\n")


def of_run(folder: Path) -> list[str]:
    """Command lines of processes that belong to the run; torchrun's workers are among them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in file.read_bytes():
                found.append(file.read_text().replace("\0", " "))
    return found


def steps(folder: Path) -> int:
    """The last step of the training job."""
    return int(read(folder, "training.jsonl")[-1]["step"])


def goes_on(folder: Path) -> None:
    """Waits until training has done twenty steps more."""
    done = steps(folder)
    wait_for(lambda: steps(folder) > done + 20, "twenty steps more", 240)


def pids_of(folder: Path, word: str) -> list[int]:
    """Processes that a live run started whose command line has that word, the first first."""
    found = []
    for pid, _ in json.loads((folder / "state.json").read_text())["processes"]:
        if any(word in each for each in procfs.command(pid)):
            found.append(int(pid))
    return found


@pytest.fixture
def live(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A live run of a minute and a half, or as many seconds as are asked for, and its folder."""
    seconds = getattr(request, "param", 90)
    trace, folder = tmp_path / "trace.csv", tmp_path / "run"
    write_trace(trace, seconds)
    command = [sys.executable, "-m", "mltcp_tools.cli.main", "cluster", "live"]
    options = ["-o", str(folder), "--requests", f"azure:{trace}", "--duration", f"{seconds}s"]
    process = subprocess.Popen([*command, *options, "--faster", "1", "--slo", "60s"])
    yield folder, process
    process.kill()
    process.wait()
    subprocess.run([*command, "-o", str(folder), "--stop"], check=True)
    groups = Path("/sys/fs/cgroup")
    assert not [*groups.glob("mltcp-live-*"), *groups.glob("*/mltcp-live-*")]
    assert not of_run(folder)


def test_cores_are_lent_and_reclaimed(live: tuple[Path, subprocess.Popen[bytes]]) -> None:
    folder, process = live
    assert process.wait(timeout=500) == 0
    found = json.loads((folder / "summary.json").read_text())
    assert found["failed"] == 0
    units = [each["units"] for each in read(folder, "controller.jsonl")]
    assert max(units) > units[0], "no core was lent to inference"
    assert units[-1] < max(units), "no core came back"
    assert found["resizes"] >= 1
    assert found["steps_lost"] == 0
    for line in read(folder, "training.jsonl"):
        assert line["batch"] == 256 * line["world"]
        assert line["rate"] == pytest.approx(1e-3 * line["world"] ** 0.5)
    assert (folder / "live.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "state.json").exists()


def test_agents_that_leave_and_join_hold_nobody_up(tmp_path: Path) -> None:
    """torchrun itself shows who joins later an address that nobody writes any more."""
    cores = Controller(tmp_path, cores=2.0)

    def meets(agents: int) -> None:
        log, before = tmp_path / "training.jsonl", time.time()
        cores._resize(agents)

        def met() -> bool:
            last = read(tmp_path, "training.jsonl")[-1:] if log.is_file() else []
            return any(each["world"] == agents and each["time"] > before for each in last)

        wait_for(met, f"a step of {agents}", 150)

    try:
        for agents in (3, 2, 3, 1, 3):
            meets(agents)
    finally:
        stop(tmp_path)


def test_a_killed_controller_leaves_both_running(
    live: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    folder, process = live
    log = folder / "training.jsonl"
    wait_for(lambda: log.is_file() and log.stat().st_size, "the first line", 240)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    goes_on(folder)
    assert (folder / "state.json").exists()
    assert any("training.py" in each for each in of_run(folder))


@pytest.mark.full
@pytest.mark.parametrize("live", [480], indirect=True)
def test_whoever_is_killed_is_started_again(live: tuple[Path, subprocess.Popen[bytes]]) -> None:
    folder, process = live
    log = folder / "training.jsonl"
    wait_for(lambda: log.is_file() and log.stat().st_size, "the first line", 240)
    goes_on(folder)

    def agents() -> list[int]:
        return pids_of(folder, "torch.distributed.run")

    def workers() -> list[int]:
        return [child for pid in agents() for child in procfs.children(pid)]

    def servers() -> list[int]:
        return pids_of(folder, "clusters.live.server")

    # A worker, the agent that came last, the server, and the agent that keeps the rendezvous.
    for kind, place in ((workers, 0), (agents, -1), (servers, 0), (agents, 0)):
        wait_for(kind, "somebody to kill", 60)
        victim = kind()[place]
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        wait_for(
            lambda kind=kind, victim=victim: kind() and victim not in kind(), "another one", 120
        )
        goes_on(folder)
    assert process.wait(timeout=500) in (0, 1)
    found = json.loads((folder / "summary.json").read_text())
    assert found["revived"] >= 2
    assert found["steps_lost"] == 0
    assert not (folder / "state.json").exists()


def test_a_run_says_whether_requests_kept_to_their_objective(tmp_path: Path) -> None:
    def lines(name: str, *each: dict[str, object]) -> None:
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in each))

    lines("load.jsonl", *({"time": 0, "took": took} for took in (0.1, 0.2, 2.0, None)))
    lines("training.jsonl", *({"step": n, "world": 1} for n in (1, 2, 2, 3)))
    lines("controller.jsonl", *({"units": n, "revived": 0} for n in (1, 2)))
    found = summary(tmp_path, 1.0, 0.5)
    assert found["slo_attainment"] == 0.5
    assert found["slo_kept"]
    assert found["failed"] == found["steps_repeated"] == found["loans_and_reclaims"] == 1
    assert not summary(tmp_path, 1.0, 0.6)["slo_kept"]
    lines("load.jsonl", {"time": 0, "took": None})
    found = summary(tmp_path, 1.0, 0.5)
    assert (found["failed"], found["latency_p99_s"], found["slo_kept"]) == (1, None, False)


@pytest.mark.full
def test_an_agent_that_dies_before_the_first_step_is_started_again(
    live: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    folder, process = live
    wait_for(
        lambda: (folder / "state.json").is_file() and pids_of(folder, "distributed.run"),
        "agents",
        240,
    )
    log = folder / "training.jsonl"
    assert not log.exists()
    os.kill(pids_of(folder, "distributed.run")[0], signal.SIGKILL)
    wait_for(lambda: log.is_file() and log.stat().st_size, "the first line", 240)
    goes_on(folder)
    assert process.wait(timeout=500) in (0, 1)
    assert json.loads((folder / "summary.json").read_text())["revived"] >= 1


def test_a_load_that_is_killed_is_no_result(live: tuple[Path, subprocess.Popen[bytes]]) -> None:
    folder, process = live
    wait_for(
        lambda: (folder / "state.json").is_file() and pids_of(folder, "live.load"), "load", 240
    )
    os.kill(pids_of(folder, "live.load")[0], signal.SIGKILL)
    assert process.wait(timeout=500) == 1
    assert not (folder / "summary.json").exists()


def test_a_group_has_what_it_was_given() -> None:
    group = CpuGroup("test")
    try:
        assert group.limit(0.75) == pytest.approx(0.75)
        with pytest.raises(BusyError, match="another live run"):
            CpuGroup("test")
    finally:
        group.remove()
