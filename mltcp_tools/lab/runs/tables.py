# SPDX-License-Identifier: BSD-2-Clause
"""Reading the tables of a run folder."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.run_tables import COLUMNS

_TEXT = ("variant", "job", "neighbour")
_WHOLE = ("repetition", "iteration", "burst", "request", "flow", "order", "bytes", "attempt")

# Columns a row can't be used without; the others may be missing or empty.
_REQUIRED: dict[str, tuple[str, ...]] = {
    "iterations": (
        "variant",
        "repetition",
        "job",
        "iteration",
        "start_s",
        "end_s",
        "compute_s",
        "comm_s",
    ),
    "bursts": ("variant", "repetition", "job", "iteration", "burst", "start_s", "end_s"),
    "samples": ("variant", "repetition", "job", "flow", "iteration", "time_s", "cwnd"),
    "flow_events": ("variant", "repetition", "job", "flow", "iteration"),
    "variants": ("variant", "repetition"),
    "disturbance": ("variant", "repetition", "attempt", "time_s", "stolen", "late_s", "latest_s"),
    "bulk": ("variant", "repetition", "neighbour", "time_s", "bytes"),
    "requests": ("variant", "repetition", "neighbour", "request", "start_s", "end_s"),
}
TABLES = tuple(COLUMNS)


def empty_table(name: str) -> pd.DataFrame:
    """A table without rows, with every column of table `name`."""
    return pd.DataFrame(
        {
            column: pd.Series(dtype="str" if column in _TEXT else "float64")
            for column in COLUMNS[name]
        }
    )


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """Table `name` of a run folder, without rows where there is none.

    Raises UsageError where it can't be read, or rows lack what a row can't be used without.
    """
    path = folder / f"{name}.csv"
    if not path.is_file():
        return empty_table(name)
    try:
        data = path.read_bytes()
        # What a recording that was killed was about to add: a number cut short is still a number.
        whole = io.BytesIO(data[: data.rfind(b"\n") + 1])
        kinds = {column: "str" if column in _TEXT else "float64" for column in COLUMNS[name]}
        table = pd.read_csv(whole, dtype=kinds).reindex(columns=list(kinds)).astype(kinds)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read ({_first_line(error)}).") from None
    required = list(_REQUIRED[name])
    if table[required].isna().any(axis=None):
        raise UsageError(f"{path} has rows without values in some of {', '.join(required)}.")
    for column in _WHOLE:
        if column in table.columns and table[column].notna().all():
            table[column] = table[column].round().astype("int64")
    return table


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120].rstrip(".")
