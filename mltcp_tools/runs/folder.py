"""Run folders: the tables that `mltcp report` reads, as whoever measures writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.errors import UsageError

_KEY = {"arm": "str", "repetition": "int64"}
_JOB = _KEY | {"job": "str"}
_NEIGHBOUR = _KEY | {"neighbour": "str"}
COLUMNS: dict[str, dict[str, str]] = {
    "iterations": _JOB
    | {"iteration": "int64", "start_s": "float64", "end_s": "float64"}
    | {"compute_s": "float64", "comm_s": "float64", "bytes": "int64"}
    | {"waited_s": "float64", "realigned": "int64"},
    "bursts": _JOB
    | {"iteration": "int64", "burst": "int64"}
    | {"start_s": "float64", "end_s": "float64", "first_end_s": "float64", "bytes": "int64"},
    "samples": _JOB
    | {"flow": "int64", "iteration": "int64", "time_s": "float64", "cwnd": "int64"}
    | {"ssthresh": "int64", "rtt_us": "int64", "retransmits": "int64"}
    | {"bytes_acked": "int64", "total_bytes": "int64"},
    "flow_events": _JOB
    | {"flow": "int64", "iteration": "int64", "first_ack_s": "float64", "last_ack_s": "float64"}
    | {"bytes": "int64", "retransmits": "int64", "srtt_us": "int64"}
    | {"cwnd": "int64", "ratio": "float64"},
    "arms": _KEY
    | {"order": "int64", "duration_s": "float64", "link_bytes": "int64"}
    | {"link_packets": "int64", "link_drops": "int64", "link_marks": "int64"}
    | {"cpu_busy": "float64"},
    "disturbance": _KEY
    | {"attempt": "int64", "time_s": "float64", "length_s": "float64"}
    | {"stolen": "float64", "others": "float64", "pressure": "float64", "queued": "float64"}
    | {"late_s": "float64", "latest_s": "float64"},
    "bulk": _NEIGHBOUR
    | {"time_s": "float64", "bytes": "int64", "cwnd": "int64", "rtt_us": "int64"}
    | {"retransmits": "int64"},
    "requests": _NEIGHBOUR
    | {"request": "int64", "start_s": "float64", "end_s": "float64", "bytes": "int64"},
}
"""Columns of each table and their types. Seconds count from the start of the arm. A burst's
`first_end_s` is when the first of its flows was done, `end_s` when the last was. In planned arms
`waited_s` is how long the job was ready before its communication was due, and `realigned` is 1
where it was too late and took a later turn. `bulk` has the
bytes that neighbours' bulk flows had got across at some instants. `disturbance` has a row per
second, of every run of an arm (`attempt`, from 1), the last of which the other tables are of; its
columns are those of host/disturbance.py."""

PLAN = "plan.json"
PLAN_SCHEMA = "mltcp-run-plan/1"
"""When the jobs of planned arms communicate (testbed/treatments/cassini.py); absent where no arm is
planned."""

RARE = ("flow_events", "bulk", "requests", "disturbance")
"""Tables that are absent where they would have no rows."""


def check_folder(folder: Path) -> None:
    """Raise UsageError unless `folder` is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and isn't an empty folder; name another with -o.")


def write_tables(folder: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write these tables, as Parquet and CSV; a reader finds old ones or new ones, never halves.

    Rows may lack columns that nobody could fill in; those are left out of the file.
    """
    for name, rows in tables.items():
        present = {c: kind for c, kind in COLUMNS[name].items() if not rows or c in rows[0]}
        table = pd.DataFrame(rows, columns=list(present)).astype(present)
        for suffix in (".parquet", ".csv"):
            temporary = folder / f".{name}{suffix}"
            if suffix == ".csv":
                table.to_csv(temporary, index=False, float_format="%.9g")
            else:
                table.to_parquet(temporary, index=False)
            temporary.replace(folder / f"{name}{suffix}")
