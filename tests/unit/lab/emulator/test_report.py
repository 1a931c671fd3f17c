# SPDX-License-Identifier: BSD-2-Clause
"""The result document and the summary."""

from __future__ import annotations

import json

import pytest

from mltcp_tools.lab.emulator.report import (
    BurstRecord,
    ClientResult,
    IterationRecord,
    TcpSample,
    summary_text,
)


def iteration(number: int, start: float, compute_s: float, burst_s: float) -> IterationRecord:
    begin, end = start + compute_s, start + compute_s + burst_s
    burst = BurstRecord(1, begin, end, 1_000_000, 1e-4, end - 0.01)
    return IterationRecord(number, start, burst.end, compute_s, (burst,))


def result() -> ClientResult:
    iterations = [iteration(1, 100.0, 0.3, 0.1), iteration(2, 100.4, 0.3, 0.3)]
    samples = [TcpSample(0, 1, 100.35, 10, 2147483647, 500, 0, 14480)]
    parameters = {"direction": "send", "cc": "cubic"}
    return ClientResult("a", parameters, iterations, samples, retransmits=7)


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
    empty = ClientResult("a", {"direction": "send", "cc": None}, error="It failed.")
    document = json.loads(json.dumps(empty.document()))
    assert document["error"] == "It failed."
    assert document["summary"]["iteration_s"]["mean"] is None
    assert "No iteration" in summary_text(empty)
