# SPDX-License-Identifier: BSD-2-Clause
"""The tables of a run folder: their columns, and their rows as CSV.

An operator's host has no pandas, so what records there writes CSV by the standard library.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.files import replace_file

_EXACT = ".12g"
_KEY = {"variant": "str", "repetition": "int64"}
_JOB = _KEY | {"job": "str"}
_NEIGHBOUR = _KEY | {"neighbour": "str"}
COLUMNS: dict[str, dict[str, str]] = {
    "iterations": _JOB
    | {"iteration": "int64", "start_s": "float64", "end_s": "float64"}
    | {"compute_s": "float64", "comm_s": "float64", "bytes": "int64"}
    | {"waited_s": "float64", "realigned": "int64"}
    | {"rtt_us": "float64", "retransmits": "float64"},
    "bursts": _JOB
    | {"iteration": "int64", "burst": "int64"}
    | {"start_s": "float64", "end_s": "float64", "first_end_s": "float64", "bytes": "int64"},
    "samples": _JOB
    | {"flow": "int64", "iteration": "int64", "time_s": "float64", "cwnd": "int64"}
    | {"ssthresh": "int64", "rtt_us": "int64", "retransmits": "int64"}
    | {"bytes_acked": "int64", "burst_bytes": "int64"},
    "flow_events": _JOB
    | {"flow": "int64", "back": "int64", "iteration": "int64"}
    | {"first_ack_s": "float64", "last_ack_s": "float64"}
    | {"bytes": "int64", "retransmits": "int64", "srtt_us": "int64"}
    | {"cwnd": "int64", "ratio": "float64"},
    "variants": _KEY
    | {"order": "int64", "duration_s": "float64", "link_bytes": "int64"}
    | {"link_packets": "int64", "link_drops": "int64", "link_marks": "int64"}
    | {"cpu_busy": "float64"},
    "disturbance": _KEY
    | {"attempt": "int64", "time_s": "float64", "length_s": "float64"}
    | {"stolen": "float64", "busiest": "float64", "own": "float64", "others": "float64"}
    | {"pressure": "float64", "queued": "float64"}
    | {"late_s": "float64", "latest_s": "float64", "skipped": "float64"},
    "bulk": _NEIGHBOUR
    | {"time_s": "float64", "bytes": "int64", "cwnd": "int64", "rtt_us": "int64"}
    | {"retransmits": "int64"},
    "requests": _NEIGHBOUR
    | {"request": "int64", "start_s": "float64", "end_s": "float64", "bytes": "int64"},
}
"""Columns of each table and their types. Seconds count from the start of the variant. A burst's
`first_end_s` is the end of its first flow, `end_s` that of its last. In planned variants `waited_s`
is the time for which the job was ready before its slot, and `realigned` is 1 where it was too late
and took a later slot. `rtt_us` is the mean RTT while the job sent, and `retransmits` the segments
that it sent again in the iteration; only traced repetitions have them. `back` is 1 for flows that
answer others of their job; a recording has both where both ends are on its host. `bulk` has the
bytes that neighbours' bulk flows had delivered at some instants. `disturbance` has a row per second
of every run of a variant (`attempt`, from 1); the other tables are of the last run. Its columns are
those of host/disturbance.py."""


def check_folder(folder: Path) -> None:
    """Raise UsageError unless `folder` is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and isn't an empty folder; name another with -o.")


def columns_of(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of table `name` that its rows fill, all of them without rows, in order.

    Raises ValueError for a column that the table doesn't have.
    """
    if not rows:
        return list(COLUMNS[name])
    if unknown := rows[0].keys() - COLUMNS[name].keys():
        raise ValueError(f"The table {name} has no column {', '.join(sorted(unknown))}.")
    return [column for column in COLUMNS[name] if column in rows[0]]


def write_csv(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table as NAME.csv; a reader finds the old one or the new one, never a half.

    Rows may lack columns that nobody could fill in; those are left out of the file.
    """
    header = columns_of(name, rows)
    replace_file(folder / f"{name}.csv", _lines(header, rows, with_header=True).encode())


def append_csv(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the end of NAME.csv, which is made with the first ones.

    Whoever reads it, or is left with it after a crash, has all rows added until then. All rows must
    have the columns of the first.
    """
    if not rows:
        return
    path = folder / f"{name}.csv"
    header = columns_of(name, rows)
    text = _lines(header, rows, with_header=not path.exists())
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)


def _lines(header: Sequence[str], rows: Sequence[Mapping[str, Any]], *, with_header: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if with_header:
        writer.writerow(header)
    writer.writerows([_cell(row[column]) for column in header] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return format(value, _EXACT) if isinstance(value, float) else value
