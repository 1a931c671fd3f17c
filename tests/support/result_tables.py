# SPDX-License-Identifier: BSD-2-Clause
"""The published tables: each from one matrix's folder, between two marks of a page.

    <!-- results: NAME -->
    a table, and the command, version, host and date that made it
    <!-- end -->

`python -m support.result_tables PAGE FOLDER...` puts those of finished matrices into a page, and
fails where a captured gain is below the interval of the table that it replaces. With `--check` it
fails as long as the commit that did so doesn't name it. Without arguments it makes README's summary
and the comparisons of kernel and simulator again, from the pages.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltcp_tools import __version__
from mltcp_tools.base.cells import NONE, interval, markdown
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.files import replace_file
from mltcp_tools.kernel.native.csources import algorithm


@dataclass(frozen=True)
class MatrixRun:
    """A matrix's document (`mltcp-matrix/1`) and the environments of its scenarios' runs."""

    document: Mapping[str, Any]
    environments: Sequence[Mapping[str, Any]]

    @property
    def algorithms(self) -> list[str]:
        """The versions of the algorithm that made it; one, unless runs were mixed."""
        return sorted({str(each["versions"].get("algorithm")) for each in self.environments})


def load_matrix_run(folder: Path) -> MatrixRun:
    """Return the run that `mltcp testbed run` or `mltcp simulate` left in `folder`; UsageError
    if nothing.
    """
    try:
        document = json.loads((folder / "matrix.json").read_text(encoding="utf-8"))
        environments = [
            json.loads((folder / scenario / "environment.json").read_text(encoding="utf-8"))
            for scenario, entry in document["scenarios"].items()
            if entry["variants"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder} is not the folder of a finished matrix ({error}); run `mltcp testbed run`"
            " or `mltcp simulate` with a matrix first."
        ) from error
    if not environments:
        raise UsageError(f"No scenario of {folder} has a result; run its matrix again.")
    return MatrixRun(document, environments)


def _made_by(run: MatrixRun) -> str:
    """Return the origin of the table, one sentence each: commands, host, version, date."""
    first = run.environments[0]
    commands = dict.fromkeys(f"`{_typed(each['command'])}`" for each in run.environments)
    starts = sorted(str(each["start"])[:10] for each in run.environments)
    when = starts[0] if starts[0] == starts[-1] else f"{starts[0]} to {starts[-1]}"
    words = [
        "Simulated by" if first.get("simulated") else "Measured by",
        f"{' and '.join(commands)}, {when};",
        f"mltcp-tools {first['versions']['mltcp-tools']}, algorithm {', '.join(run.algorithms)}.",
    ]
    if not first.get("simulated"):
        words.append(
            f"{first['cpus']} CPUs ({first['cpu_model']}), kernel {first['kernel']['release']}."
        )
    return " ".join(words)


def _typed(command: str) -> str:
    """Return the command as typed, wherever the program is installed."""
    program, _, arguments = command.partition(" ")
    return f"{Path(program).name} {arguments}"


def results_table(document: Mapping[str, Any]) -> str:
    """A row for each scenario, a column for each variant, the bound, and the gain of the variant
    `mltcp`."""
    variants = _variants(document)
    lines = [
        [
            "",
            *(f"**{variant}**" if variant == "mltcp" else variant for variant in variants),
            "bound",
            "captured gain",
        ]
    ]
    for scenario, entry in document["scenarios"].items():
        if not entry["variants"]:
            lines.append([f"`{scenario}`", entry["problem"], *[""] * len(variants), ""])
            continue
        cells = [_times(entry["variants"].get(variant)) for variant in variants]
        gain = (entry["variants"].get("mltcp") or {}).get("captured_gain")
        lines.append([f"`{scenario}`", *cells, _times(entry["bound"]), interval(gain)])
    return markdown(lines)


def neighbours_table(document: Mapping[str, Any]) -> str:
    """A row for each scenario and bulk flow next to its jobs, a column for each variant: what the
    flow gets, and that over what it gets in the variant's base; "" where there are none."""
    variants = _variants(document)
    lines = [["", "bulk flow", *variants]]
    for scenario, entry in document["scenarios"].items():
        got = {variant: own["bulk_bps"] for variant, own in entry["variants"].items()}
        for flow in dict.fromkeys(flow for flows in got.values() for flow in flows):
            cells = []
            for variant in variants:
                own = got.get(variant, {}).get(flow)
                base = entry["variants"][variant]["base"] if variant in got else None
                beside = got.get(base, {}).get(flow)
                over = f" ({own / beside:.2f})" if own is not None and beside else ""
                cells.append(NONE if own is None else f"{own / 1e6:.1f}{over}")
            lines.append([f"`{scenario}`", flow, *cells])
    return markdown(lines) if len(lines) > 1 else ""


def _variants(document: Mapping[str, Any]) -> list[str]:
    """Names of the variants of all scenarios, in the order in which they come."""
    return list(
        dict.fromkeys(
            variant for entry in document["scenarios"].values() for variant in entry["variants"]
        )
    )


def _times(entry: Mapping[str, Any] | None) -> str:
    if not entry or entry["mean_s"] is None:
        return NONE
    spread = entry.get("spread_s")
    between = f" ({_ms(spread['min'])} to {_ms(spread['max'])})" if spread else ""
    return f"{_ms(entry['mean_s'])}{between} / {_ms(entry['p99_s'])}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f}"


def put_between(page: str, name: str, content: str) -> str:
    """The page with the content between `<!-- results: NAME -->` and the `<!-- end -->` after it.

    Raises UsageError where it has no such pair of marks.
    """
    begin, end = f"<!-- results: {name} -->\n", "<!-- end -->"
    before, mark, rest = page.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise UsageError(f"The document has no place for a table ({begin.strip()} … {end}).")
    return f"{before}{begin}{content}\n{end}{after}"


def show_simulated(name: str, table: str, by: str, page: Path | None) -> None:
    """Print a table, what it is simulated by, and of which version; put it into a page, if any."""
    version = f"mltcp-tools {__version__}, algorithm {algorithm()}"
    made = f"{table}\n\nSimulated by {by}, {time.strftime('%Y-%m-%d')}; {version}."
    print(made)
    if page is not None:
        replace_file(page, put_between(page.read_text(encoding="utf-8"), name, made).encode())


def put_table(page: str, name: str, run: MatrixRun) -> str:
    """`page` with the tables of `run` between the marks that bear the name."""
    document = run.document
    parts = [results_table(document), neighbours_table(document), _made_by(run)]
    return put_between(page, name, "\n\n".join(part for part in parts if part))


ROOT = Path(__file__).parents[2]
SUMMARISED = (
    ("mltcp_tools/lab/experiments/RESULTS.md", "headline-vm", "emulated in a VM"),
    ("mltcp_tools/lab/experiments/RESULTS.md", "headline", "emulated"),
    ("mltcp_tools/lab/experiments/RESULTS.md", "headline-simulated", "simulated"),
    ("tests/bench/RESULTS.md", "training", "PyTorch, 2 ranks"),
    ("tests/bench/RESULTS.md", "training, 4 ranks", "PyTorch, 4 ranks"),
)
"""(page, name of the table, what ran its jobs) of each table that README sums up; the first that
has a scenario gives its row, but for PyTorch's."""
_NAME = re.compile(r"^<!-- results: (.+) -->$", re.M)
_CELL = re.compile(r"^([\d.]+) \(.*\) / ([\d.]+)$")
_GAIN = re.compile(r"^\| (`[^`]+`) \|.* (-?\d+\.\d+) \[(-?\d+\.\d+), (-?\d+\.\d+)\] \|$", re.M)


def between(page: str, name: str) -> str:
    """The part of a page between the marks of that name; "" where there are none."""
    return page.partition(f"<!-- results: {name} -->\n")[2].partition("<!-- end -->")[0]


def times_of(page: str, name: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Of each row and column of the (first) table that has times: mean and 99th percentile, ms."""
    table = between(page, name).strip().partition("\n\n")[0].splitlines()
    cells = [[cell.strip("*` ") for cell in row.strip("| ").split(" | ")] for row in table]
    return {
        row[0]: {
            column: (float(found[1]), float(found[2]))
            for column, cell in zip(cells[0][-len(row) + 1 :], row[1:], strict=True)
            if (found := _CELL.match(cell))
        }
        for row in cells[2:]
    }


def agreement_table(page: str, name: str) -> str:
    """A row for each scenario and a column for each variant that both the table of that name and
    its simulation have: mean iteration on the kernel and simulated, milliseconds, and by how much
    the latter is longer. "" where they have none in common."""
    kernel, simulated = times_of(page, name), times_of(page, f"{name}-simulated")
    rows = {
        scenario: {
            variant: f"{own[0]:g} / {other[0]:g} ({other[0] / own[0] - 1:+.1%})"
            for variant, own in times.items()
            if (other := simulated.get(scenario, {}).get(variant)) and variant != "bound"
        }
        for scenario, times in kernel.items()
    }
    variants = dict.fromkeys(variant for cells in rows.values() for variant in cells)
    lines = [
        [f"`{scenario}`", *(cells.get(variant, "") for variant in variants)]
        for scenario, cells in rows.items()
        if cells
    ]
    return markdown([["", *variants], *lines]) if lines else ""


def with_agreement(page: str) -> str:
    """The page, with its comparisons of kernel and simulator made again from its tables."""
    for name in _NAME.findall(page):
        if table := agreement_table(page, name):
            title = f"{name}: kernel and simulator"
            said = "Mean iteration on the kernel / simulated, milliseconds, and the difference."
            page = put_between(_with_marks(page, title), title, f"{said}\n\n{table}")
    return page


def summary() -> str:
    """README's table: of each scenario `mltcp` against the better of Reno and CUBIC, by the mean
    and by the 99th percentile of iteration times."""
    lines = [["jobs", "", "better base, ms", "mltcp, ms", "mean", "99th percentile"]]
    for page, name, ran in SUMMARISED:
        listed = {line[0] for line in lines}
        for scenario, cells in times_of((ROOT / page).read_text(encoding="utf-8"), name).items():
            if not ran.startswith("PyTorch") and f"`{scenario}`" in listed:
                continue
            own = cells["mltcp"]
            bases = [each for each in ("cubic", "reno") if each in cells]
            base = min(bases, key=lambda each: cells[each][0])
            best = cells[base]
            lines.append(
                [
                    f"`{scenario}`",
                    ran,
                    f"{best[0]:g} ({'CUBIC' if base == 'cubic' else 'Reno'})",
                    f"{own[0]:g}",
                    *(f"{100 * (a / b - 1):+.0f} %" for a, b in zip(own, best, strict=True)),
                ]
            )
    return markdown(lines)


def gains(page: str) -> dict[str, tuple[float, float, float]]:
    """Of each `TABLE/SCENARIO` of a page its captured gain, and the interval's ends."""
    return {
        f"{name}/{scenario.strip('`')}": (float(gain), float(low), float(high))
        for name in _NAME.findall(page)
        for scenario, gain, low, high in _GAIN.findall(between(page, name))
    }


def fallen(old: str, new: str, said: str = "") -> list[str]:
    """Gains of a page that are below the interval that the page before gave them, and that aren't
    named in what was said of the change."""
    before = gains(old)
    return [
        f"{name}: a captured gain of {gain:.2f}, which was {before[name][0]:.2f}"
        f" [{before[name][1]:.2f}, {before[name][2]:.2f}]; the commit must name it and say why."
        for name, (gain, _, _) in gains(new).items()
        if name in before
        and gain < before[name][1]
        and not re.search(rf"{re.escape(name)}(?!\S)", said)
    ]


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"git {words[0]} failed: {done.stderr.strip()}; fetch the history.")
    return done.stdout


def unexplained(root: Path, page: str) -> list[str]:
    """Gains that fell with the page's latest change, committed or not, and that its commit doesn't
    name. UsageError where that can't be told."""
    new = (root / page).read_text(encoding="utf-8")
    if new != (now := _git(root, "show", f"HEAD:{page}")):
        return fallen(now, new)
    commit = _git(root, "log", "-1", "--format=%H", "--", page).strip()
    there = _git(root, "ls-tree", f"{commit}^", "--", page)
    old = _git(root, "show", f"{commit}^:{page}") if there else ""
    return fallen(old, new, _git(root, "log", "-1", "--format=%B", commit))


def main(page: Path, folders: Sequence[Path]) -> list[str]:
    """Put the tables of these folders into the page, under the folders' names, and compare kernel
    and simulator anew; a name that the page lacks gets a section at its end. Returns the gains
    that fell."""
    old = text = page.read_text(encoding="utf-8")
    runs = {folder.name: load_matrix_run(folder) for folder in folders}
    for name, run in runs.items():
        text = put_table(_with_marks(text, name), name, run)
    text = with_agreement(text)
    replace_file(page, text.encode())
    return fallen(old, text)


def _with_marks(page: str, name: str) -> str:
    mark = f"<!-- results: {name} -->\n"
    return page if mark in page else f"{page.rstrip()}\n\n## {name}\n\n{mark}<!-- end -->\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        pages = dict.fromkeys(page for page, _, _ in SUMMARISED)
        sys.exit("\n".join(each for page in pages for each in unexplained(ROOT, page)) or 0)
    if sys.argv[1:]:
        sys.exit("\n".join(main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]])) or 0)
    results = ROOT / SUMMARISED[0][0]
    replace_file(results, with_agreement(results.read_text(encoding="utf-8")).encode())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    replace_file(ROOT / "README.md", put_between(readme, "summary", summary()).encode())
