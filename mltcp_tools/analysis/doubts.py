"""What makes a run's numbers doubtful although nothing is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltcp_tools.analysis.bootstrap import MIN_ROOM
from mltcp_tools.analysis.lone import Lone, findings
from mltcp_tools.runs.described import ALONE
from mltcp_tools.runs.run import Run

BUSY_CPU = 0.85
FEW_ITERATIONS = 40
MANY_REALIGNED = 0.1


def warnings_of(run: Run, result: dict[str, Any], lone: Mapping[str, Lone]) -> list[str]:
    """Sentences: what the testbed noted, a busy host, jobs that lose much alone, and the like.

    `result` is a document of schema mltcp-result/1 whose warnings aren't filled in yet.
    """
    noted = run.environment.get("warnings")
    recorded = [str(each) for each in noted] if isinstance(noted, list) else []
    return [
        *recorded,
        *_busy(run, recorded),
        *findings(run, lone),
        *_no_room(result),
        *_no_jitter(run),
        *_few(result),
        *_blind_backend(result),
        *_missed_turns(result),
    ]


def _busy(run: Run, recorded: list[str]) -> list[str]:
    rows = run.arms[run.arms["cpu_busy"] > BUSY_CPU]
    return [
        f"The CPU was {row.cpu_busy:.0%} busy in arm {row.arm}, repetition {row.repetition}: the "
        "host, not the link, may have set the pace."
        for row in rows.itertuples()
        # The testbed has said so already: "cubic 1/3: the CPUs were ...".
        if not any(each.startswith(f"{row.arm} {row.repetition}/") for each in recorded)
    ]


def _no_room(result: dict[str, Any]) -> list[str]:
    bound = result["schedules"].get("bound")
    baseline = result["arms"].get(result["baseline"])
    if not bound or not baseline:
        return []
    ratio = baseline["ratio_to_bound"]
    if ratio is not None and ratio < 1 + MIN_ROOM:
        return [
            f"The baseline is within {MIN_ROOM:.0%} of the bound ({ratio:.3f} times): there is "
            "next to nothing to capture, so captured gain is left out."
        ]
    return []


def _no_jitter(run: Run) -> list[str]:
    rows = run.iterations[run.iterations["arm"] != ALONE]
    spread = rows.groupby(["arm", "repetition", "job"])["compute_s"].agg(["std", "mean", "count"])
    spread = spread[(spread["count"] >= 10) & (spread["mean"] > 0)]
    if len(spread) and (spread["std"] / spread["mean"]).max() < 0.005:
        return [
            "The compute times don't vary: jobs that happen not to collide stay apart under any "
            "congestion control, so arms can look interleaved by luck."
        ]
    return []


def _few(result: dict[str, Any]) -> list[str]:
    few = []
    for arm, entry in result["arms"].items():
        jobs = [job["iteration_s"] for job in entry["jobs"].values()]
        if jobs and min(job["count"] for job in jobs if job) < FEW_ITERATIONS:
            few.append(arm)
    if not few:
        return []
    return [
        f"Fewer than {FEW_ITERATIONS} iterations per job in {', '.join(few)}: percentiles and "
        "intervals are rough."
    ]


def _blind_backend(result: dict[str, Any]) -> list[str]:
    sentences = []
    for arm, entry in result["arms"].items():
        seen = (entry["kernel"] or {}).get("events_per_burst")
        if seen is not None and not 0.9 <= seen <= 1.1:
            sentences.append(
                f"In arm {arm} the kernel ended {seen:.2f} iterations per burst sent, where 1 is "
                "right: it takes the jobs' bursts for something else."
            )
    return sentences


def _missed_turns(result: dict[str, Any]) -> list[str]:
    sentences = []
    for arm, entry in result["arms"].items():
        realigned = (entry["plan"] or {}).get("realigned")
        iterations = (entry["iteration_s"] or {}).get("count")
        if realigned and iterations and realigned > MANY_REALIGNED * iterations:
            sentences.append(
                f"In arm {arm} {realigned} of {iterations} iterations came too late for their turn,"
                " which cost most of one each: the jobs vary more than the plan allows for; more"
                " `room` gives longer turns and fewer of these."
            )
    return sentences
