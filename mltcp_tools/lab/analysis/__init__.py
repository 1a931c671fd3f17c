# SPDX-License-Identifier: BSD-2-Clause
"""From a run folder's files to measures, tables, plots and an HTML report.

Works on files alone: needs no root, no kernel feature and no backend. The result document is
described in `result.py`, its measures in `metrics.py`, the schedules that variants are measured
against in `simulator/schedules.py`.
"""

from __future__ import annotations

from mltcp_tools.lab.analysis.compare import compare_runs, render_comparison
from mltcp_tools.lab.analysis.matrix import render_matrix_text
from mltcp_tools.lab.analysis.summary import summarise
from mltcp_tools.lab.analysis.text import render_text
from mltcp_tools.lab.analysis.write import (
    Report,
    make_report,
    save_matrix,
    write_report,
)
from mltcp_tools.lab.runs.run import Run, load_run

__all__ = [
    "Report",
    "Run",
    "compare_runs",
    "load_run",
    "make_report",
    "render_comparison",
    "render_matrix_text",
    "render_text",
    "save_matrix",
    "summarise",
    "write_report",
]
