# SPDX-License-Identifier: BSD-2-Clause
"""The look of all plots, and figures as images."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Jobs run from dark to light, so that no job is taken for a variant.
COLOURS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#c8b400", "#7a5195", "#003f5c", "#9aa5b1")
INK = "#222222"
_DPI = 130
# Names of jobs and variants may have dollar signs, which aren't formulas.
mpl.rcParams["text.parse_math"] = False


def subplots(
    rows: int = 1, columns: int = 1, *, figsize: tuple[float, float], **how: Any
) -> tuple[Figure, Any]:
    """A figure of `figsize` inches and its axes, as Figure.subplots() gives them."""
    figure = Figure(figsize=figsize, layout="tight")
    return figure, figure.subplots(rows, columns, **how)


def png(figure: Figure) -> bytes:
    """The figure as a PNG image."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_figure(buffer, dpi=_DPI, format="png", facecolor="white")
    return buffer.getvalue()


def dress(axes: Axes) -> None:
    """Give the axes a light grid behind the data, and no frame above and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
