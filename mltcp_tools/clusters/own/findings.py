# SPDX-License-Identifier: BSD-2-Clause
"""All that is found out about one's own cluster, in the order in which it is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.own import page
from mltcp_tools.clusters.own.ask import SHARES, Findings, ask
from mltcp_tools.clusters.own.conflicts import conflicts
from mltcp_tools.clusters.own.facts import facts
from mltcp_tools.clusters.own.logs import read_log
from mltcp_tools.clusters.own.replay import calibrated, compare, error, trust
from mltcp_tools.clusters.workload import Workload, parse_workload
from mltcp_tools.lab.planning.reading import read_text


def findings(
    data: Path,
    draws: int,
    said: Callable[[str], None] = lambda what: None,
    shown: Callable[[str], None] = lambda text: None,
) -> Findings:
    """All about the workload in a file. said: hears what is worked out; shown: gets each part as
    text as soon as it is there."""
    workload = _read(data, SHARES[0])
    unknown = bool(workload.shared)
    workload, held_out = calibrated(workload)
    found = facts(workload)
    shown("".join(f"{each}\n" for each in (*workload.inputs, *found.sentences())))
    # Beside jobs whose communication is unknown nothing can be predicted, and where an iteration is
    # what a second of the job's time holds, its duration predicts itself.
    told = not unknown and "iteration" not in workload.assumed
    compared = compare(workload, held_out) if told else []
    notes = [*page.unsaid(workload), *page.unexplained(compared)]
    shown(page.render_trust(trust(compared), notes))
    by_share = []
    for share in SHARES if unknown else (None,):
        asked = workload if share is None else calibrated(_read(data, share))[0]
        by_share.append(ask(asked, error(compared), draws, said, share))
    answers = [answer for question in zip(*by_share, strict=True) for answer in question]
    shown(page.render_answers(answers))
    said("Conflicts")
    worst = [] if unknown else conflicts(workload)
    shown(page.render_conflicts(worst, found.gpu_hours, unknown))
    return Findings(workload.inputs, found, notes, compared, answers, worst)


def _read(data: Path, share: float) -> Workload:
    """The workload; a UsageError that says so where that is a log, or has no observed job."""
    try:
        workload = parse_workload(read_text(data), str(data), share=share)
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
