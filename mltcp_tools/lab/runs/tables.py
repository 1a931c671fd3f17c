# SPDX-License-Identifier: BSD-2-Clause
"""The tables of a run folder, read so that damage costs as little as possible.

Damage becomes sentences, not errors.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd

from mltcp_tools.base.run_tables import COLUMNS
from mltcp_tools.base.units import counted

_TEXT = ("variant", "job", "neighbour")
_WHOLE = ("repetition", "iteration", "burst", "request", "flow", "order", "bytes", "attempt")
_COUNTED = ("repetition", "iteration", "burst", "request", "attempt")  # whole numbers from 1
_DURATIONS = ("compute_s", "comm_s")
_TIMES = ("start_s", "end_s", "time_s", *_DURATIONS)
# Thirty years: larger values are damage, and would stretch axes and sums.
_LONGEST_S = 1e9

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
# What makes a row the only one of its kind.
_KEYS: dict[str, list[str]] = {
    "iterations": ["variant", "repetition", "job", "iteration"],
    "bursts": ["variant", "repetition", "job", "iteration", "burst"],
    "variants": ["variant", "repetition"],
    "requests": ["variant", "repetition", "neighbour", "request"],
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


def read_table(folder: Path, name: str, problems: list[str]) -> pd.DataFrame:
    """Table `name` of a run folder; without rows where it can't be read.

    Sentences on missing and unusable parts are added to `problems`.
    """
    path = folder / f"{name}.csv"
    if not path.is_file():
        problems.append(f"The table {name} is missing.")
        return empty_table(name)
    try:
        raw = _read_csv(path, problems)
    except Exception as error:  # pandas raises many kinds on damaged files
        problems.append(f"{path.name} can't be read ({_first_line(error)}).")
        return empty_table(name)
    missing = [column for column in _REQUIRED[name] if column not in raw.columns]
    if missing:
        problems.append(f"{path.name} lacks the columns {', '.join(missing)}.")
        return empty_table(name)
    return _clean(raw, name, path.name, problems)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120].rstrip(".")


def _read_csv(path: Path, problems: list[str]) -> pd.DataFrame:
    data = path.read_bytes()
    if not data.strip():
        raise ValueError("the file is empty")
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        # A number cut short still reads as a number, so an unfinished line can't be trusted.
        problems.append(f"{path.name} ends in the middle of a line, which is left out.")
    if not whole:
        raise ValueError("it holds no complete line")
    table = pd.read_csv(
        io.BytesIO(whole),
        dtype=dict.fromkeys(_TEXT, "str"),
        on_bad_lines="skip",
        encoding_errors="replace",
        low_memory=False,
    )
    skipped = sum(1 for line in whole.splitlines() if line.strip()) - 1 - len(table)
    if skipped > 0:
        problems.append(
            f"{path.name} has {counted(skipped, 'line')} with too many fields, left out."
        )
    return table


def _plausible(table: pd.DataFrame) -> pd.Series[bool]:
    """Return the mask of rows that a run can have written; others would distort all results."""
    good = pd.Series(True, index=table.index)
    # Tables are laid out by these numbers, so one far beyond the rows there are costs memory.
    highest = 1000 + 10 * len(table)
    for column in table.columns:
        values = table[column]
        if column in _COUNTED:
            good &= values.between(1, highest) & (values == values.round())
        elif column in _TIMES:
            good &= values.abs() <= _LONGEST_S
        if column in _DURATIONS:
            good &= values >= 0
    if "start_s" in table.columns and "end_s" in table.columns:
        good &= table["end_s"] >= table["start_s"]
    return good


def _clean(raw: pd.DataFrame, name: str, source: str, problems: list[str]) -> pd.DataFrame:
    table = pd.DataFrame(index=raw.index)
    for column in COLUMNS[name]:
        if column not in raw.columns:
            table[column] = np.nan
        elif column in _TEXT:
            table[column] = raw[column].astype("str").where(raw[column].notna())
        else:
            values = pd.to_numeric(raw[column], errors="coerce").astype("float64")
            table[column] = values.where(np.isfinite(values))
    usable = table[list(_REQUIRED[name])].notna().all(axis=1) & _plausible(table)
    if not usable.all():
        problems.append(
            f"{source} has {counted(int((~usable).sum()), 'line')} without usable values."
        )
    table = table[usable]
    keys = _KEYS.get(name)
    if keys is not None:
        twice = table.duplicated(keys)
        if twice.any():
            problems.append(
                f"{source} has {counted(int(twice.sum()), 'line')} twice; the first one counts."
            )
            table = table[~twice]
    for column in _WHOLE:
        if column in table.columns and table[column].notna().all():
            table[column] = table[column].round().astype("int64")
    # A run without `--trace` samples nothing.
    if table.empty and name != "samples":
        problems.append(f"The table {name} holds no rows.")
    return table.reset_index(drop=True)
