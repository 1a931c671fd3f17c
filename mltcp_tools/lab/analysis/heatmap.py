"""A heat map of captured gain over the parameters in which the MLTCP arms of a run differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mltcp_tools.figures import png
from mltcp_tools.kernel.variants import is_mltcp

_LEAST_ARMS = 4
_OTHER_FIELDS = ("told", "base", "plan")
_COLUMNS = 3
# One arm that is far slower than the baseline must not take the colours from the others.
_LOWEST = -1.0

Value = str | float | None
Arm = dict[str, Value]


def draw_parameters(result: Mapping[str, Any]) -> bytes | None:
    """The heat map of a result (`mltcp-result/1`) as PNG.

    None unless four MLTCP arms or more with a captured gain differ in at least two parameters. Arms
    with a treatment differ by another system, so they have no place among them. The two parameters
    with the most values are the axes; the others' combinations are panels.
    """
    arms = _arms(result)
    fields = {
        name: _ordered(arm.get(name) for arm in arms.values())
        for name in dict.fromkeys(name for arm in arms.values() for name in arm)
    }
    varying = sorted(
        (name for name, values in fields.items() if len(values) > 1),
        key=lambda name: -len(fields[name]),
    )
    if len(arms) < _LEAST_ARMS or len(varying) < 2:
        return None
    x, y, *rest = varying
    panels: dict[tuple[Value, ...], dict[tuple[Value, Value], float]] = {}
    for name, arm in arms.items():
        panel = panels.setdefault(tuple(arm.get(each) for each in rest), {})
        panel[arm.get(x), arm.get(y)] = result["arms"][name]["captured_gain"]["value"]
    ordered = sorted(panels, key=lambda key: [_rank(each) for each in key])
    columns = min(_COLUMNS, len(ordered))
    rows = -(-len(ordered) // columns)
    width, height = 1.3 + 0.62 * len(fields[x]), 1.0 + 0.42 * len(fields[y])
    figure = Figure(figsize=(max(4.5, columns * width + 1), rows * height + 0.6))
    figure.set_layout_engine("constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    gains = [gain for panel in panels.values() for gain in panel.values()]
    lowest = max(_LOWEST, min(0.0, *gains))
    for axes, key in zip(grid.flat, ordered, strict=False):
        image = _panel(axes, panels[key], fields[x], fields[y], lowest)
        told = ", ".join(f"{name} {_label(v)}" for name, v in zip(rest, key, strict=True))
        axes.set_title(told, fontsize=8, loc="left")
        axes.set_xlabel(x, fontsize=8)
        axes.set_ylabel(y, fontsize=8)
    for axes in list(grid.flat)[len(ordered) :]:
        axes.set_visible(False)
    bar = figure.colorbar(image, ax=grid, shrink=0.8)
    bar.set_label("captured gain", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return png(figure)


def _arms(result: Mapping[str, Any]) -> dict[str, Arm]:
    """The parameters of the MLTCP arms without a treatment that have a captured gain."""
    described = result["experiment"].get("arms")
    found = {}
    for name, arm in described.items() if isinstance(described, Mapping) else ():
        gain = result["arms"].get(name, {}).get("captured_gain")
        if not gain or not isinstance(arm, Mapping) or arm.get("treatment"):
            continue
        if is_mltcp(str(arm.get("cc"))):
            found[name] = {key: _value(v) for key, v in arm.items() if key not in _OTHER_FIELDS}
    return found


def _value(value: object) -> Value:
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, (list, tuple)):
        return "".join(str(each)[:1] for each in value) or "none"
    return str(value)


def _rank(value: Value) -> tuple[int, float, str]:
    """Sorts numbers by size behind what isn't given and before words."""
    if isinstance(value, float):
        return (1, value, "")
    return (2, 0.0, value) if isinstance(value, str) else (0, 0.0, "")


def _ordered(values: Any) -> list[Value]:
    return sorted(set(values), key=_rank)


def _label(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "default" if value is None else value


def _panel(
    axes: Axes,
    cells: Mapping[tuple[Value, Value], float],
    xs: Sequence[Value],
    ys: Sequence[Value],
    lowest: float,
) -> Any:
    values = [[cells.get((x, y), float("nan")) for x in xs] for y in ys]
    image = axes.imshow(
        values, cmap="viridis", vmin=lowest, vmax=1.0, origin="lower", aspect="auto"
    )
    for row, line in enumerate(values):
        for column, gain in enumerate(line):
            if gain == gain:  # not one that no arm has
                dark = (gain - lowest) / (1.0 - lowest) < 0.6
                axes.text(
                    column,
                    row,
                    f"{gain:.2f}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if dark else "black",
                )
    axes.set_xticks(range(len(xs)), [_label(x) for x in xs], fontsize=7)
    axes.set_yticks(range(len(ys)), [_label(y) for y in ys], fontsize=7)
    return image
