"""Plots as files."""

from __future__ import annotations

import io

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


def png(figure: Figure) -> bytes:
    """The figure as PNG; it is closed."""
    buffer = io.BytesIO()
    figure.tight_layout()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    return buffer.getvalue()
