"""Run folders: the tables that measurements write and `mltcp report` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.errors import UsageError
from mltcp_tools.host.files import replace_file

_FLOAT = "%.9g"
_EXACT = "%.12g"
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
    | {"flow": "int64", "back": "int64", "iteration": "int64"}
    | {"first_ack_s": "float64", "last_ack_s": "float64"}
    | {"bytes": "int64", "retransmits": "int64", "srtt_us": "int64"}
    | {"cwnd": "int64", "ratio": "float64"},
    "arms": _KEY
    | {"order": "int64", "duration_s": "float64", "link_bytes": "int64"}
    | {"link_packets": "int64", "link_drops": "int64", "link_marks": "int64"}
    | {"cpu_busy": "float64", "queue_mean_bytes": "float64", "queue_p99_bytes": "float64"},
    "disturbance": _KEY
    | {"attempt": "int64", "time_s": "float64", "length_s": "float64"}
    | {
        "stolen": "float64",
        "own": "float64",
        "others": "float64",
        "pressure": "float64",
        "queued": "float64",
    }
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
where it was too late and took a later turn. `back` is 1 of flows that answer others of their job,
which a recording sees where both ends are on its host. `bulk` has the bytes that neighbours' bulk
flows had got across at some instants. `queue_mean_bytes` and
`queue_p99_bytes` are of what waits or is being sent, on the wire, over the time for which links
were busy; a simulation has them. `disturbance` has a row per second, of every run of an arm
(`attempt`, from 1), the last of which the other tables are of; its columns are those of
host/disturbance.py."""

PLAN = "plan.json"
PLAN_SCHEMA = "mltcp-run-plan/1"
"""When the jobs of planned arms communicate (planning/arms.py); absent where no arm is
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
        _write(folder, name, _table(name, rows))


def append_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the end of a table's CSV file, which is made with the first ones.

    Whoever reads it, or is left with it after a crash, has all rows added until then. All rows must
    have the columns of the first. `complete_tables` makes Parquet of it in the end.
    """
    if not rows:
        return
    path = folder / f"{name}.csv"
    text = _table(name, rows).to_csv(index=False, float_format=_EXACT, header=not path.exists())
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def complete_tables(folder: Path, arm: str) -> None:
    """Write the tables that `append_rows` made as Parquet, too, all rows of the arm `arm`."""
    for name in COLUMNS:
        path = folder / f"{name}.csv"
        if path.is_file():
            _write(folder, name, pd.read_csv(path, dtype=COLUMNS[name]).assign(arm=arm))


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    present = {c: kind for c, kind in COLUMNS[name].items() if not rows or c in rows[0]}
    return pd.DataFrame(rows, columns=list(present)).astype(present)


def _write(folder: Path, name: str, table: pd.DataFrame) -> None:
    replace_file(folder / f"{name}.parquet", table.to_parquet(index=False))
    text = table.to_csv(index=False, float_format=_FLOAT)
    replace_file(folder / f"{name}.csv", text.encode())
