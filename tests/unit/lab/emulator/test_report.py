# SPDX-License-Identifier: BSD-2-Clause
"""The result document, the summary and the interval lines."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.report import (
    Burst,
    Counters,
    IntervalReporter,
    Iteration,
    Result,
    Sample,
    check_output,
    summary_text,
    write_document,
)


def iteration(number: int, start: float, compute_s: float, burst_s: float) -> Iteration:
    begin, end = start + compute_s, start + compute_s + burst_s
    burst = Burst(1, begin, end, 1_000_000, 1e-4, end - 0.01)
    return Iteration(number, start, burst.end, compute_s, (burst,))


def result() -> Result:
    iterations = [iteration(1, 100.0, 0.3, 0.1), iteration(2, 100.4, 0.3, 0.3)]
    samples = [Sample(0, 1, 100.35, 10, 2147483647, 500, 0, 14480)]
    parameters = {"direction": "send", "cc": "cubic"}
    return Result("a", parameters, iterations, samples, retransmits=7)


def test_summary_numbers() -> None:
    summary = result().summary()
    assert summary["iterations"] == 2
    assert summary["elapsed_s"] == pytest.approx(1.0)
    assert summary["bytes"] == 2_000_000
    assert summary["retransmits"] == 7
    assert summary["iteration_s"]["mean"] == pytest.approx(0.5)
    assert summary["communication_s"]["p50"] == pytest.approx(0.2)
    assert summary["communication_s"]["p99"] == pytest.approx(0.298)
    assert summary["goodput_bps"] == pytest.approx(16e6)
    assert summary["burst_goodput_bps"] == pytest.approx(40e6)
    assert summary["lateness_s"]["max"] == pytest.approx(1e-4)


def test_document_has_the_documented_fields() -> None:
    document = json.loads(json.dumps(result().document()))
    assert document["schema"] == "mltcp-emulate/1"
    assert set(document) == {
        "schema", "job", "parameters", "error", "iterations", "samples", "summary",
    }  # fmt: skip
    first = document["iterations"][0]
    assert set(first) == {"iteration", "start", "end", "compute", "bytes", "bursts"}
    assert set(first["bursts"][0]) == {"burst", "start", "end", "bytes", "first_end"}
    assert document["samples"][0]["bytes_acked"] == 14480


def test_nothing_measured_is_still_a_document() -> None:
    empty = Result("a", {"direction": "send", "cc": None}, error="It failed.")
    document = json.loads(json.dumps(empty.document()))
    assert document["error"] == "It failed."
    assert document["summary"]["iteration_s"]["mean"] is None
    assert "No iteration" in summary_text(empty)


def test_summary_text() -> None:
    text = summary_text(result())
    assert "2 iterations in 1.00 s, 2 MB, 16 Mbit/s overall" in text
    assert "7 retransmits, congestion control cubic" in text
    assert "each way" not in text


def test_interval_lines() -> None:
    counters = [Counters(0, 0), Counters(1_000_000, 3), Counters(1_500_000, 4)]
    out = io.StringIO()
    reporter = IntervalReporter(out, 1.0, 50.0, lambda: counters.pop(0))
    assert reporter.due == 51.0
    reporter.tick(50.5)
    reporter.finished(iteration(1, 50.0, 0.3, 0.1))
    reporter.finished(iteration(2, 50.4, 0.3, 0.3))
    reporter.tick(51.0)
    reporter.close(51.5)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert " ".join(lines[1].split()) == "0.00-1.00 s 2 500 ms 1 MB 8 Mbit/s 3"
    assert " ".join(lines[2].split()) == "1.00-1.50 s 0 - 500 kB 8 Mbit/s 1"


def test_lines_nobody_reads_stop_quietly() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    reporter = IntervalReporter(Closed(), 1.0, 50.0, lambda: Counters(0, 0))
    reporter.tick(51.0)
    reporter.tick(52.0)


def test_document_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    check_output(path)
    write_document({"a": 1}, path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_full_disk_leaves_no_part_of_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, mode: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fchmod", full)  # called once all of it has been written aside
    with pytest.raises(UsageError, match="No space left"):
        write_document({}, tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_impossible_output_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nosuch" / "result.json"):
        with pytest.raises(UsageError, match="Can't write the result"):
            check_output(path)
        with pytest.raises(UsageError, match="Can't write the result"):
            write_document({}, path)
    assert list(tmp_path.iterdir()) == []
