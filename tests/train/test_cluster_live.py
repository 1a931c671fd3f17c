"""FaPES on this host: cores are lent and reclaimed, and a killed controller harms nobody."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support.waiting import wait_for

from mltcp_tools.clusters.live.report import read
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


@pytest.fixture
def live(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A live run of a minute and a half, and its folder."""
    trace, folder = tmp_path / "trace.csv", tmp_path / "run"
    write_trace(trace, 90)
    command = [sys.executable, "-m", "mltcp_tools.cli.main", "cluster", "live"]
    options = ["-o", str(folder), "--requests", f"azure:{trace}", "--duration", "90s"]
    process = subprocess.Popen([*command, *options, "--faster", "1", "--slo", "5s"])
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
    assert (folder / "live.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "state.json").exists()


def test_a_killed_controller_leaves_both_running(
    live: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    folder, process = live
    log = folder / "training.jsonl"
    wait_for(lambda: log.is_file() and log.stat().st_size, "the first line", 240)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    steps = read(folder, "training.jsonl")[-1]["step"]
    wait_for(
        lambda: read(folder, "training.jsonl")[-1]["step"] > steps + 20, "twenty steps more", 240
    )
    assert (folder / "state.json").exists()
    assert any("training.py" in each for each in of_run(folder))


def test_a_group_has_what_it_was_given() -> None:
    group = CpuGroup("test")
    try:
        assert group.limit(0.75) == pytest.approx(0.75)
        with pytest.raises(BusyError, match="another live run"):
            CpuGroup("test")
    finally:
        group.remove()
