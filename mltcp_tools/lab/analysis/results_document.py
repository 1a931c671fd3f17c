"""RESULTS.md: the tables of several matrices in one document, each with what made it.

A table is never typed: every section comes from one matrix's folder, made by one version of the
algorithm on one host.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltcp_tools.cells import NONE, interval, markdown
from mltcp_tools.errors import UsageError
from mltcp_tools.lab.analysis.agreement import agree, agreement_table
from mltcp_tools.lab.analysis.contenders import TIE, contenders_table, queues_table, wins
from mltcp_tools.lab.analysis.published import joined, made_by, put_between, sections

TITLE = "# Results"
_MISSED = "Not as expected in"
_UNEXPECTED = re.compile(rf"^- {_MISSED} `(?P<mix>[^`]+)`: (?P<sentence>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class MatrixRun:
    """A matrix's document (`mltcp-matrix/1`) and the environments of its mixes' runs."""

    document: Mapping[str, Any]
    environments: Sequence[Mapping[str, Any]]

    @property
    def simulated(self) -> bool:
        return any(each.get("simulated") for each in self.environments)

    @property
    def name(self) -> str:
        """The matrix's name, with `-simulated` where the simulator ran it."""
        name = str(self.document["name"])
        return f"{name}-simulated" if self.simulated else name

    @property
    def algorithms(self) -> list[str]:
        """The versions of the algorithm that made it; one, unless runs were mixed."""
        return sorted({str(each["versions"].get("algorithm")) for each in self.environments})


def load_matrix_run(folder: Path) -> MatrixRun:
    """Return the run that `mltcp testbed matrix` or `mltcp simulate` left in `folder`; UsageError
    if nothing.
    """
    try:
        document = json.loads((folder / "matrix.json").read_text(encoding="utf-8"))
        environments = [
            json.loads((folder / mix / "environment.json").read_text(encoding="utf-8"))
            for mix, entry in document["mixes"].items()
            if entry["arms"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{folder} is not the folder of a finished matrix ({error}); run `mltcp testbed matrix`"
            " or `mltcp simulate` with a matrix first."
        ) from error
    if not environments:
        raise UsageError(f"No mix of {folder} has a result; run its matrix again.")
    return MatrixRun(document, environments)


def render_results(runs: Sequence[MatrixRun], former: str = "") -> str:
    """The whole document as Markdown.

    former: the document as it was; the sections of it that none of the runs makes anew stay.
    """
    head = (
        f"{TITLE}\n\nMilliseconds per iteration: mean (lowest to highest mean of a repetition) /"
        " p99. The captured gain is that of the arm `mltcp` over the baseline, with its 95 %"
        " interval; [experiments](README.md#reading-the-numbers) explains it, and the bound. The"
        " command `scripts/results` makes this file; no table in it is typed."
    )
    made = "\n\n".join([*(_section(run) for run in runs), *_agreements(runs)])
    return joined(sections(former) | sections(made) | {"": head})


def _section(run: MatrixRun) -> str:
    parts = [
        f"## {run.name}",
        made_by(run.name, "algorithm", ", ".join(run.algorithms)),
        _made_by(run),
        results_table(run.document),
        *_expected(run.document),
    ]
    if table := neighbours_table(run.document):
        parts.append(
            "Throughput of the bulk flows next to the jobs, Mbit/s, and that over what they get"
            " next to the arm's base."
        )
        parts.append(table)
    if table := contenders_table(run.document):
        parts.append(
            f"An arm wins that has the shortest mean iteration, or one within {TIE:.1%} of it while"
            " it needs less. Behind the best arm of each need is its captured gain, of the whole"
            f" run and from iteration 10 on. {wins(run.document)}"
        )
        parts.append(table)
        if queues := queues_table(run.document):
            parts.append(
                "Queues over reno's in the same mix, measured from themselves while their links"
                " were busy: the median of the mixes without marks (lowest to highest)."
            )
            parts.append(queues)
    return "\n\n".join(parts)


def _expected(document: Mapping[str, Any]) -> list[str]:
    """Return sentences on the expectations of its mixes; nothing where they don't say what they
    expect.
    """
    count = sum(bool(entry.get("expected")) for entry in document["mixes"].values())
    lines = [f"- {_MISSED} `{mix}`: {each}" for mix, each in missed(document)]
    if not count:
        return []
    return ["\n".join(lines) or f"What is expected came out, in all mixes that say it: {count}."]


def missed(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(mix, sentence on what it expects and didn't come out), of a matrix's document."""
    mixes = document["mixes"].items()
    return [(mix, each) for mix, entry in mixes for each in entry.get("missed", [])]


def _agreements(runs: Sequence[MatrixRun]) -> list[str]:
    """A section for each matrix that is among the runs both from a kernel and simulated."""
    sections = []
    for run in runs:
        for other in runs:
            same = run.document["name"] == other.document["name"]
            if not same or run.simulated or not other.simulated:
                continue
            if table := agreement_table(run.document, other.document):
                sections.append(
                    f"## {run.name}: kernel and simulator\n\nMean iteration on the kernel /"
                    " simulated, milliseconds, and the difference."
                    f" {agree(run.document, other.document)}\n\n{table}"
                )
    return sections


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
    """A row for each mix, a column for each arm, the bound, and the gain of the arm `mltcp`."""
    arms = _arms(document)
    lines = [
        ["", *(f"**{arm}**" if arm == "mltcp" else arm for arm in arms), "bound", "captured gain"]
    ]
    for mix, entry in document["mixes"].items():
        if not entry["arms"]:
            lines.append([f"`{mix}`", entry["problem"], *[""] * len(arms), ""])
            continue
        cells = [_times(entry["arms"].get(arm)) for arm in arms]
        gain = (entry["arms"].get("mltcp") or {}).get("captured_gain")
        lines.append([f"`{mix}`", *cells, _times(entry["bound"]), interval(gain)])
    return markdown(lines)


def neighbours_table(document: Mapping[str, Any]) -> str:
    """A row for each mix and bulk flow next to its jobs, a column for each arm: what the flow gets,
    and that over what it gets in the arm's base; "" where there are none."""
    arms = _arms(document)
    lines = [["", "bulk flow", *arms]]
    for mix, entry in document["mixes"].items():
        got = {arm: own["bulk_bps"] for arm, own in entry["arms"].items()}
        for flow in dict.fromkeys(flow for flows in got.values() for flow in flows):
            cells = []
            for arm in arms:
                own = got.get(arm, {}).get(flow)
                base = entry["arms"][arm]["base"] if arm in got else None
                beside = got.get(base, {}).get(flow)
                over = f" ({own / beside:.2f})" if own is not None and beside else ""
                cells.append(NONE if own is None else f"{own / 1e6:.1f}{over}")
            lines.append([f"`{mix}`", flow, *cells])
    return markdown(lines) if len(lines) > 1 else ""


def _arms(document: Mapping[str, Any]) -> list[str]:
    """Names of the arms of all mixes, in the order in which they come."""
    return list(dict.fromkeys(arm for entry in document["mixes"].values() for arm in entry["arms"]))


def _times(entry: Mapping[str, Any] | None) -> str:
    if not entry or entry["mean_s"] is None:
        return NONE
    spread = entry.get("spread_s")
    between = f" ({_ms(spread['min'])} to {_ms(spread['max'])})" if spread else ""
    return f"{_ms(entry['mean_s'])}{between} / {_ms(entry['p99_s'])}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f}"


def unexpected(text: str) -> list[str]:
    """Return the lines of a results document on what didn't come out as expected."""
    return [f"{each['mix']}: {each['sentence']}" for each in _UNEXPECTED.finditer(text)]


def put_table(text: str, run: MatrixRun) -> str:
    """`text` with `run`'s table between `<!-- results: MATRIX -->` and `<!-- end -->`."""
    return put_between(
        text, str(run.document["name"]), f"{results_table(run.document)}\n\n{_made_by(run)}"
    )
