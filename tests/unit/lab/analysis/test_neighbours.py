# SPDX-License-Identifier: BSD-2-Clause
"""Bulk flows and requests: their measures from made-up tables, and how they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.run_folders import experiment, make_run
from support.shown import fits

from mltcp_tools.lab.analysis import load_run, render_text, summarise

VARIANTS = {"cubic": "cubic", "reno": "reno", "mltcp": "mltcp", "mltcp_cubic": "mltcp_cubic"}
NEIGHBOURS = [
    {"name": "bulk", "cc": "reno", "count": 2},
    {"name": "rpc", "cc": "variant", "size": "20kB", "think": "20ms"},
]
# What each variant's neighbours get: bit/s of the two bulk flows, seconds of a request.
GOT = {
    "cubic": (20e6, 20e6, 0.010),
    "reno": (30e6, 10e6, 0.008),
    "mltcp": (27e6, 9e6, 0.012),
    "mltcp_cubic": (10e6, 30e6, 0.010),
}


def bulk(variant: str, repetition: int, name: str, bps: float) -> pd.DataFrame:
    """A bulk flow's bytes each 0.1 s, for longer than any variant runs."""
    time_s = np.arange(0.0, 100.0, 0.1)
    key = {"variant": variant, "repetition": repetition, "neighbour": name}
    table = pd.DataFrame({"time_s": time_s, "bytes": (bps / 8 * time_s).astype("int64")})
    return table.assign(**key, cwnd=10, rtt_us=1000, retransmits=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    document = experiment(jobs=2, variants=VARIANTS, neighbours=NEIGHBOURS)
    folder = make_run(tmp_path_factory.mktemp("runs") / "run", document)
    flows, requests = [], []
    for variant, (first, second, seconds) in GOT.items():
        for repetition in (1, 2):
            for name, bps in (("bulk-1", first), ("bulk-2", second)):
                flows.append(bulk(variant, repetition, name, bps))
            start_s = np.arange(0.0, 100.0, 0.05)
            table = pd.DataFrame({"request": np.arange(len(start_s)) + 1, "start_s": start_s})
            table["end_s"] = start_s + seconds
            # What begins after the jobs have ended doesn't count.
            table.loc[start_s > 50, "end_s"] += 1.0
            key = {"variant": variant, "repetition": repetition, "neighbour": "rpc"}
            requests.append(table.assign(**key, bytes=20_000))
    pd.concat(flows).to_csv(folder / "bulk.csv", index=False)
    pd.concat(requests).to_csv(folder / "requests.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> dict[str, Any]:
    return summarise(load_run(folder)).document()


def test_throughput_and_completion_times(result: dict[str, Any]) -> None:
    assert list(result["schedules"]) == ["alone"]
    assert any("Neighbours share the link" in each for each in result["problems"])
    for variant, (first, second, seconds) in GOT.items():
        got = result["variants"][variant]["neighbours"]
        assert list(got) == ["rpc", "bulk-1", "bulk-2"]
        assert got["bulk-1"]["throughput_bps"]["mean"] == pytest.approx(first, rel=1e-3)
        assert got["bulk-2"]["throughput_bps"]["max"] == pytest.approx(second, rel=1e-3)
        assert got["rpc"]["completion_s"]["p99"] == pytest.approx(seconds)
        assert got["bulk-1"]["cc"] == "reno"
        assert got["rpc"]["cc"] == VARIANTS[variant]


def test_variant_is_compared_with_its_base(result: dict[str, Any]) -> None:
    variants = result["variants"]
    assert [variants[variant]["base"] for variant in VARIANTS] == [None, None, "reno", "cubic"]
    assert variants["cubic"]["neighbours"]["bulk-1"]["ratio_to_base"] is None
    assert variants["mltcp"]["neighbours"]["bulk-1"]["ratio_to_base"] == pytest.approx(
        0.9, rel=1e-3
    )
    assert variants["mltcp"]["neighbours"]["rpc"]["ratio_to_base"]["p99"] == pytest.approx(1.5)
    assert variants["mltcp_cubic"]["neighbours"]["bulk-2"]["ratio_to_base"] == pytest.approx(1.5)


def test_reports_compare_neighbours_with_the_base(result: dict[str, Any]) -> None:
    rows = [line.split() for line in fits(render_text(result)).splitlines()]
    assert ["mltcp", "bulk-1", "reno", "27.0", "27.0", "27.0", "0.90"] in rows
    assert ["mltcp", "rpc", "mltcp", "12.0", "12.0", "12.0", "1.50", "1.50"] in rows
    assert "(mltcp: reno, mltcp_cubic: cubic)" in render_text(result).replace("\n", " ")


def test_a_run_without_their_tables_has_no_such_table(folder: Path, tmp_path: Path) -> None:
    document = experiment(jobs=2, variants=VARIANTS, neighbours=NEIGHBOURS)
    run = load_run(make_run(tmp_path / "run", document))
    result = summarise(run).document()
    assert result["variants"]["mltcp"]["neighbours"] == {}
    assert "Neighbours: " not in render_text(result)
