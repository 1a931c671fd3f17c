# SPDX-License-Identifier: BSD-2-Clause
"""Disturbance of a host, from counters to seconds."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from mltcp_tools.kernel.host import disturbance
from mltcp_tools.kernel.host.disturbance import DisturbanceWatch, HostSample, seconds_of


def samples(count: int, every_s: float = 0.1) -> list[HostSample]:
    """Two CPUs of which the hypervisor takes a tenth, others a fifth and we half a CPU."""
    return [
        HostSample(
            at=100 + index * every_s,
            stolen=2 * index,
            worked=9 * index,
            ticks=20 * index,
            each=[(9 * index, 10 * index), (2 * index, 10 * index)],
            own_s=0.05 * index,
            pressure_s=0.03 * index,
            queued_s=0.02 * index,
            late_s=0.001 * 10 * index,
            probes=10 * index,
            latest_s=0.004 if index != 15 else 0.05,
            skipped=(None, 7, 8, 2)[index // 8],
        )
        for index in range(count)
    ]


def test_counters_become_shares_of_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disturbance.os, "sysconf", lambda _: 100)
    found = seconds_of(samples(31), 100.0, 102.5)
    assert [round(each.at - 100, 6) for each in found] == [0.0, 1.0, 2.0]
    assert [each.length_s for each in found] == pytest.approx([1.0, 1.0, 0.5])
    for each in found:
        assert each.stolen == pytest.approx(0.1)
        assert each.busiest == pytest.approx(0.9)
        assert each.own == pytest.approx(0.25)
        assert each.others == pytest.approx(0.2)
        assert each.pressure == pytest.approx(0.3)
        assert each.queued == pytest.approx(0.2)
        assert each.late_s == pytest.approx(0.001)
    assert [each.latest_s for each in found] == [0.004, 0.05, 0.004]
    # Programs that are loaded anew begin at 0.
    assert [each.skipped for each in found] == [7, 1, 0]


def test_a_host_is_watched_and_children_are_told_from_others() -> None:
    before = disturbance._Children().ran_and_queued_s()[0]
    with DisturbanceWatch() as watch:
        start = time.monotonic()
        spin = "import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass"
        subprocess.run([sys.executable, "-c", spin], check=True)
        own = watch._children.ran_and_queued_s()[0]
        end = time.monotonic()
    found = watch.seconds(start, end)
    assert sum(each.length_s for each in found) <= end - start
    for each in found:
        assert 0 <= each.stolen <= 1
        assert each.busiest is not None
        assert 0 < each.busiest <= 1
        assert each.others is None or 0 <= each.others <= 1.1
        assert 0 <= each.late_s <= each.latest_s
    if before is not None and own is not None:  # a kernel without schedstat tells neither
        assert own > before


def test_all_threads_of_children_count() -> None:
    """The first one of this child only waits for another."""
    spin = """
import sys, threading, time
def spin():
    while time.thread_time() < 1: pass
thread = threading.Thread(target=lambda: (spin(), print(flush=True), sys.stdin.read()))
thread.start()
thread.join()
"""
    children = disturbance._Children()
    before, _ = children.ran_and_queued_s()
    if before is None:
        pytest.skip("this kernel has no schedstat")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", spin], **pipes) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive, _ = children.ran_and_queued_s()
        child.communicate()
    ended, _ = children.ran_and_queued_s()
    assert alive is not None
    assert ended is not None
    assert alive - before >= 1
    assert ended >= alive
