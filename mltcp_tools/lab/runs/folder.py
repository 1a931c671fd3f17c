# SPDX-License-Identifier: BSD-2-Clause
"""Run folders: the files that measurements write and `mltcp report` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.files import replace_file
from mltcp_tools.base.run_tables import COLUMNS, columns_of

_FLOAT = "%.12g"
PLAN = "plan.json"
PLAN_SCHEMA = "mltcp-run-plan/1"
"""The times at which jobs of planned variants communicate (planning/variants.py); absent where no
variant is planned."""

RARE = ("flow_events", "bulk", "requests", "disturbance")
"""Tables that are absent where they would have no rows."""


def write_tables(folder: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write these tables as CSV; each file is replaced at once.

    Columns that no row has are left out of the file.
    """
    for name, rows in tables.items():
        _write(folder, name, _table(name, rows))


def read_document(path: Path, schema: str) -> dict[str, Any]:
    """The JSON object in `path`, which must have that schema; UsageError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read ({error}).") from None
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise UsageError(f"{path} isn't of the schema {schema}: another version wrote it.")
    return document


def _table(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    present = columns_of(name, rows)
    kinds = {column: COLUMNS[name][column] for column in present}
    return pd.DataFrame(rows, columns=present).astype(kinds)


def _write(folder: Path, name: str, table: pd.DataFrame) -> None:
    text = table.to_csv(index=False, float_format=_FLOAT)
    replace_file(folder / f"{name}.csv", text.encode())
