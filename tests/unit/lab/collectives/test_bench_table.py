# SPDX-License-Identifier: BSD-2-Clause
"""The page of measured collectives: what made each table, and whether that is still so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.collective_results import for_results, read

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.collectives.bench_table import SCHEMA
from mltcp_tools.lab.collectives.provenance import made, version


def document(by: dict[str, Any]) -> dict[str, Any]:
    row = {
        "bytes": 1_000_000,
        "density": 1.0,
        "ranks": 4,
        "seconds": 0.08,
        "cpu_s": 0.004,
        "bound_s": 0.08,
    }
    row |= {"algorithm_rate": 1e8, "bus_rate": 1.5e8, "most_speedup": 1.5}
    row |= {"algorithm": "aggregated", "speedup": 1.48, "speedup_range": [1.4, 1.5]}
    row |= {"speedup_total": 1.47, "correct": True, "identical": True}
    links = {
        "rates": [100_000_000] * 4,
        "block": 352,
        "type": "float32",
    }
    counted = {"bytes": 10_000_000, "busy_s": 0.004}
    return links | {"schema": SCHEMA, "rows": [row], "made": by, "aggregator": counted}


def test_a_table_says_what_made_it() -> None:
    by = made()
    page = for_results({"now": document(by), "before": document(by | {"collectives": "0123abcd"})})
    assert f"`{by['command']}`" in page
    assert f"collectives {version()}. {by['cpus']} CPUs" in page
    assert "took 0.40 ns of CPU time for each byte" in page
    assert "(forwarding included): 20 Gbit/s per core." in page
    assert "| 2 Gbit/s | 1.48 (1.40 to 1.50) | 1.47 | 1.50 |" in page
    assert "collectives 0123abcd." in page


def test_a_document_of_another_kind_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(json.dumps({"schema": "another"}))
    with pytest.raises(UsageError, match="is no document of"):
        read(file)
