"""Jobs that share links, each with a collective, under several congestion controls.

Each rank's namespace has a rank of every job, so the jobs meet on every link. An arm is a
collective and a congestion control; its rows go into a run folder, as those of a testbed run do.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from mltcp_tools.cells import markdown
from mltcp_tools.collectives.session import PORT
from mltcp_tools.errors import MltcpError, UsageError
from mltcp_tools.kernel.host.files import replace_file
from mltcp_tools.kernel.variants import is_mltcp
from mltcp_tools.lab.collectives.bench_here import aggregator, collect, start_rank
from mltcp_tools.lab.collectives.star import Star
from mltcp_tools.lab.runs.folder import write_tables
from mltcp_tools.lab.runs.run import load_run
from mltcp_tools.lab.testbed.backend import use_backend
from mltcp_tools.lab.testbed.leftovers import LOCKS, RunLock, remove_leftovers, require_privileges
from mltcp_tools.live.observe.environment import Environment
from mltcp_tools.live.observe.tables import check_folder

TOGETHER_SCHEMA = "mltcp-collectives-together/1"

BASELINE = ("gloo", "cubic")
_READY_S = 120.0
_AHEAD_S = 0.5  # from the word to the start, for it to reach every rank
_SKIPPED = 3  # first iterations, in which jobs haven't met yet


@dataclass(frozen=True)
class Together:
    """jobs of `ranks` ranks each, behind links of `rates` bit/s with queues of `queue` bytes.

    bytes: of each job's float32 tensor, of whose blocks a share of `density` isn't zero. compute_s:
    seconds before each reduction, with a standard deviation of `jitter` times that.
    """

    jobs: int
    rates: tuple[int, ...]
    queue: int
    bytes: int
    density: float
    compute_s: float
    jitter: float
    iterations: int
    repetitions: int
    seed: int
    collectives: tuple[str, ...]
    congestion_controls: tuple[str, ...]

    def arms(self) -> list[tuple[str, str]]:
        """Collective and congestion control of each."""
        return [(each, cc) for each in self.collectives for cc in self.congestion_controls]


def run_together(
    setting: Together, folder: Path, say: Callable[[str], None], go_on: bool = False
) -> list[dict[str, Any]]:
    """Run every arm in turn, once per repetition; the rows of the table, and a run folder.

    go_on: add these repetitions to those in the folder, of the same setting. Needs root. What isn't
    available (a congestion control, an aggregator) raises MltcpError.
    """
    require_privileges()
    iterations: list[dict[str, Any]] = []
    before = 0
    if go_on:
        before, iterations = _earlier(setting, folder)
        setting = replace(setting, repetitions=before + setting.repetitions)
    else:
        check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    environment = Environment(folder)
    replace_file(
        folder / "experiment.yaml", yaml.safe_dump(describe(setting), sort_keys=False).encode()
    )
    remove_leftovers()
    ours = {cc for cc in setting.congestion_controls if is_mltcp(cc)}
    with contextlib.ExitStack() as stack:
        if ours:
            stack.enter_context(use_backend(LOCKS, ours, say))
        for repetition in range(before + 1, setting.repetitions + 1):
            for collective, cc in setting.arms():
                say(f"{collective} under {cc}, repetition {repetition}")
                rows = _run_arm(setting, collective, cc, repetition)
                arm = {"arm": name_of(collective, cc), "repetition": repetition}
                iterations += [arm | row for row in rows]
    write_tables(
        folder, {"iterations": iterations, "bursts": [burst_of(row) for row in iterations]}
    )
    found = table(setting, iterations)
    replace_file(folder / "together.md", render(found).encode())
    environment.finish("finished")
    return found


def _earlier(setting: Together, folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of repetitions that a folder has, and their iterations; UsageError if of
    another setting.
    """
    try:
        stored = yaml.safe_load((folder / "experiment.yaml").read_text())
        count = int(stored["repetitions"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{folder} has no run to go on with ({error}).") from None
    same = describe(replace(setting, repetitions=count))
    if yaml.safe_load(yaml.safe_dump(same)) != stored:
        raise UsageError(f"{folder} is of another setting; give the options of its run.")
    columns = ["arm", "repetition", "job", "iteration", "bytes"]
    columns += ["start_s", "end_s", "compute_s", "comm_s"]
    rows = load_run(folder).iterations[columns].to_dict("records")
    return count, [{str(name): value for name, value in row.items()} for row in rows]


def name_of(collective: str, cc: str) -> str:
    """An arm's name."""
    return f"{collective}-{cc}"


def describe(setting: Together) -> dict[str, Any]:
    """The document of the experiment, as `mltcp report` reads it."""
    jobs = [
        {"name": f"job{job}", "bytes": setting.bytes, "compute": setting.compute_s}
        for job in range(1, setting.jobs + 1)
    ]
    return {
        "name": "together",
        "description": f"{setting.jobs} jobs of {len(setting.rates)} ranks that share their links",
        "link": {"rate": min(setting.rates), "queue": setting.queue},
        "jobs": jobs,
        "arms": {name_of(*arm): {"cc": arm[1]} for arm in setting.arms()},
        "baseline": name_of(*BASELINE),
        "iterations": setting.iterations,
        "repetitions": setting.repetitions,
        "collectives": asdict(setting) | {"rates": list(setting.rates)},
    }


def _run_arm(setting: Together, collective: str, cc: str, repetition: int) -> list[dict[str, Any]]:
    """Its jobs' iterations, as rows without the columns that all of an arm share."""
    with (
        RunLock() as lock,
        Star(lock.id, setting.rates, setting.queue) as star,
        aggregator(star, f"together-{lock.id}", "xdp"),
        tempfile.TemporaryDirectory() as meeting,
    ):
        ranks = []
        for job in range(setting.jobs):
            for rank in range(len(setting.rates)):
                work = {
                    "job": job,
                    "jobs": setting.jobs,
                    "algorithm": collective,
                    "bytes": setting.bytes,
                    "density": setting.density,
                    "compute_s": setting.compute_s,
                    "jitter": setting.jitter,
                    "iterations": setting.iterations,
                    "seed": setting.seed * 1000 + repetition,
                    "congestion_control": cc,
                    "aggregator": f"{star.gateway(rank)}:{PORT}",
                    "folder": meeting,
                }
                module = "mltcp_tools.lab.collectives.together_rank"
                ranks.append(start_rank(star, rank, module, work, job))
        try:
            _let_go(Path(meeting), setting.jobs, ranks)
            outputs = collect(ranks)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    rows = []
    for job in range(setting.jobs):
        for line in outputs[job * len(setting.rates)].splitlines():
            row = json.loads(line)
            rows.append({"job": f"job{job + 1}", "bytes": setting.bytes} | row)
    return rows


def _let_go(meeting: Path, jobs: int, ranks: Sequence[Any]) -> None:
    """Once all jobs are ready, say when they begin."""
    deadline = time.monotonic() + _READY_S
    while len(list(meeting.glob("ready-*"))) < jobs:
        if any(process.poll() for process in ranks):
            return  # one has failed, which collecting their words tells
        if time.monotonic() > deadline:
            raise MltcpError(f"Not all jobs were ready within {_READY_S:g} s.")
        time.sleep(0.05)
    replace_file(meeting / "go", str(time.monotonic() + _AHEAD_S).encode())


def burst_of(row: dict[str, Any]) -> dict[str, Any]:
    """An iteration's reduction, as the table of bursts has it."""
    return {
        **{name: row[name] for name in ("arm", "repetition", "job", "iteration", "bytes")},
        "burst": 1,
        "start_s": row["end_s"] - row["comm_s"],
        "end_s": row["end_s"],
        "first_end_s": row["end_s"],
    }


def table(setting: Together, iterations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per arm: mean seconds of an iteration and of its reduction, and gains.

    Counted are iterations in which all jobs run, without the first, in which they haven't met yet.

    gain: the baseline's mean iteration by this one's; gains: the same of each repetition, in which
    all arms draw alike. expected: the gain of the collective alone times that of the congestion
    control alone, None where one of these wasn't run; of_expected: gain by that in each repetition,
    so below 1 in all of them where gains don't multiply.
    """
    counted = _counted(iterations)
    means = {arm: _mean_iterations(counted, name_of(*arm)) for arm in setting.arms()}
    base = means.get(BASELINE)
    gain, gains = {}, {}
    if base:
        gain = {arm: statistics.mean(base) / statistics.mean(own) for arm, own in means.items()}
        gains = {arm: [a / b for a, b in zip(base, own, strict=True)] for arm, own in means.items()}
    rows = []
    for arm, own in means.items():
        collective, cc = arm
        both = (collective, BASELINE[1]), (BASELINE[0], cc)
        alone = [gain[each] for each in both if each in gain]
        each_alone = [gains[each] for each in both if each in gains]
        products = [a * b for a, b in zip(*each_alone, strict=True)] if len(alone) == 2 else []
        reductions = [row["comm_s"] for row in counted if row["arm"] == name_of(*arm)]
        rows.append(
            {
                "collective": collective,
                "congestion_control": cc,
                "iteration_s": statistics.mean(own),
                "communication_s": statistics.mean(reductions),
                "gain": gain.get(arm),
                "gains": gains.get(arm, []),
                "expected": alone[0] * alone[1] if len(alone) == 2 else None,
                "of_expected": [a / b for a, b in zip(gains[arm], products, strict=True)]
                if products
                else [],
            }
        )
    return rows


def _counted(iterations: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the iterations in which all jobs run, without the first ones."""
    ends: dict[tuple[str, int], dict[str, float]] = {}
    for row in iterations:
        ends.setdefault((row["arm"], row["repetition"]), {})[row["job"]] = row["end_s"]
    return [
        row
        for row in iterations
        if row["iteration"] > _SKIPPED
        and row["end_s"] <= min(ends[row["arm"], row["repetition"]].values())
    ]


def _mean_iterations(counted: Sequence[dict[str, Any]], arm: str) -> list[float]:
    """Mean seconds of an arm's iterations in each repetition."""
    own: dict[int, list[float]] = {}
    for row in counted:
        if row["arm"] == arm:
            own.setdefault(row["repetition"], []).append(row["end_s"] - row["start_s"])
    return [statistics.mean(seconds) for _, seconds in sorted(own.items())]


def render(rows: Sequence[dict[str, Any]]) -> str:
    """The table as Markdown; with several repetitions a gain has its least and most of these."""
    head = ["collective", "congestion control", "iteration", "reduction", "gain"]
    lines = [[*head, "if they multiplied", "gain by that"]]
    for row in rows:
        gain, expected = (
            "" if row[each] is None else f"{row[each]:.2f}" for each in ("gain", "expected")
        )
        if len(row["gains"]) > 1:
            gain += f" ({_interval(row['gains'])})"
        by_that = _interval(row["of_expected"]) if row["of_expected"] else ""
        times = (f"{row[each] * 1e3:.0f} ms" for each in ("iteration_s", "communication_s"))
        arm = row["collective"], row["congestion_control"]
        lines.append([*arm, *times, gain, expected, by_that])
    return markdown(lines) + "\n"


def _interval(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"
