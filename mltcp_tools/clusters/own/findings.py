# SPDX-License-Identifier: BSD-2-Clause
"""All that is found out about one's own cluster, in the order in which it is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.own import page
from mltcp_tools.clusters.own.ask import Findings, ask
from mltcp_tools.clusters.own.conflicts import conflicts
from mltcp_tools.clusters.own.facts import facts
from mltcp_tools.clusters.own.logs import read_log
from mltcp_tools.clusters.own.replay import calibrated, compare, error, trust
from mltcp_tools.clusters.reading import parse_workload
from mltcp_tools.clusters.workload import Workload
from mltcp_tools.lab.planning.reading import read_text


def findings(
    data: Path,
    draws: int,
    said: Callable[[str], None] = lambda what: None,
    shown: Callable[[str], None] = lambda text: None,
) -> Findings:
    """All about the workload in a file. said: hears what is worked out; shown: gets each part as
    text as soon as it is there."""
    workload, held_out = calibrated(_read(data))
    found = facts(workload)
    shown("".join(f"{each}\n" for each in (*workload.inputs, *found.sentences())))
    # Where an iteration is what a second of the job's time holds, its duration predicts itself.
    compared = [] if "iteration" in workload.assumed else compare(workload, held_out)
    notes = [*page.unsaid(workload), *page.unexplained(compared)]
    shown(page.render_trust(trust(compared), notes))
    answers = ask(workload, error(compared), draws, said)
    shown(page.render_answers(answers))
    said("Conflicts")
    worst = conflicts(workload)
    shown(page.render_conflicts(worst, found.gpu_hours))
    return Findings(workload.inputs, found, notes, compared, answers, worst)


def _read(data: Path) -> Workload:
    """The workload; a UsageError that says so where that is a log, or has no observed job."""
    try:
        workload = parse_workload(read_text(data), str(data))
    except UsageError as error:
        try:
            read_log(data)
        except UsageError:
            raise error from None
        raise UsageError(
            f"{data} is a log; `mltcp cluster import {data} -o data.yaml` converts it."
        ) from None
    if not workload.observed:
        raise UsageError(
            f"{data} has no job that was observed; make it with `mltcp cluster import`."
        )
    return workload
