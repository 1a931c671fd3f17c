# SPDX-License-Identifier: BSD-2-Clause
"""Variants with a plan: what an experiment may say, and time shifts from made-up profiles."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support.run_folders import LONE_COMM_S, experiment, make_run

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.time_shift import TimeShift
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import tasks_of
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.planning.profile import Phase, Profile
from mltcp_tools.lab.planning.variants import (
    PAYLOAD,
    VariantPlan,
    plan_variant,
    plan_variants,
    write_plans,
)
from mltcp_tools.lab.testbed.treatments import check_treatments
from mltcp_tools.lab.testbed.treatments.time_shifts import TimeShiftsSession

TEXT = """\
name: small
link: {rate: 100mbit}
jobs:
  - {name: job, count: 2, bytes: 1MB, compute: 100ms, start: random}
variants:
  cubic: {cc: cubic}
  planned: {cc: cubic, treatment: {time_shifts: {}}}
  mltcp+planned: {cc: mltcp, treatment: {time_shifts: {room: 3%}}, slope: 2}
"""
TWO_LINKS = TEXT.replace("link: {rate: 100mbit}", "links: {one: {rate: 100mbit}, two: {}}")


def small(text: str = TEXT) -> Experiment:
    return parse_experiment(text, "small.yaml")


def profile(name: str, compute_s: float, communication_s: float, rate_bps: float) -> Profile:
    phase = Phase(compute_s, communication_s, rate_bps)
    return Profile(name, compute_s + communication_s, (phase,))


def plan(
    compute_s: float, communication_s: float, text: str = TEXT, variant: str = "planned"
) -> VariantPlan:
    experiment = small(text)
    profiles = [
        profile(job.name, compute_s, communication_s, 100e6 * PAYLOAD) for job in experiment.jobs
    ]
    return plan_variant(experiment, experiment.variant(variant), profiles)


def apart(time_shifts: dict[str, TimeShift] | VariantPlan) -> float:
    """Seconds between the starts of the two jobs' nearest iterations."""
    found = time_shifts.time_shifts if isinstance(time_shifts, VariantPlan) else time_shifts
    one, other = found.values()
    ahead = (other.shift_s - one.shift_s) % one.period_s
    return min(ahead, one.period_s - ahead)


def test_many_jobs_over_several_links_have_no_plan() -> None:
    text = TWO_LINKS.replace("count: 2", "count: 33, links: [one]")
    with pytest.raises(UsageError, match="takes 32 jobs at most, and there are 33"):
        small(text)
    assert len(small(text.replace("33", "32")).jobs) == 32


@pytest.mark.parametrize("iterations", [0, 1])
def test_a_plan_needs_the_jobs_alone(iterations: int) -> None:
    text = TEXT + f"alone: {{iterations: {iterations}}}\n"
    with pytest.raises(UsageError, match=r"variant planned .*`alone` with 2 iterations or more"):
        check_treatments(small(text))
    check_treatments(small(text).override(variants=["cubic"]))
    check_treatments(small())


def test_jobs_that_fit_are_shifted_apart() -> None:
    found = plan(0.1, 0.08)
    assert found.score == found.worst == pytest.approx(1.0)
    assert found.stretch == pytest.approx(0.01)
    assert found.capacity_bps == {"link": pytest.approx(100e6 * PAYLOAD)}
    assert all(slot.period_s == pytest.approx(0.18 * 1.01) for slot in found.time_shifts.values())
    assert apart(found) > 0.08
    generous = plan(0.1, 0.08, variant="mltcp+planned")
    assert all(
        slot.period_s == pytest.approx(0.18 * 1.03) for slot in generous.time_shifts.values()
    )


def test_periods_of_jobs_that_do_not_fit_are_longer() -> None:
    # Two thirds of the time each: a third of it the link would have to carry twice its rate.
    found = plan(0.05, 0.1)
    assert found.score == pytest.approx(2 / 3, abs=0.01)
    assert found.stretch == pytest.approx(0.01 + 1 / 3, abs=0.01)
    assert all(
        slot.period_s == pytest.approx(0.15 * (1 + found.stretch))
        for slot in found.time_shifts.values()
    )
    assert apart(found) == pytest.approx(0.1, abs=0.005)


def test_pairs_on_links_of_their_own_are_planned_jointly() -> None:
    text = TEXT.replace("link: {rate: 100mbit}", "links: {one: {}, two: {}, three: {}}")
    jobs = "".join(
        f"  - {{name: {name}, bytes: 1MB, compute: 100ms, links: [{links}]}}\n"
        for name, links in (("a", "three, one"), ("b", "one, two"), ("c", "two, three"))
    )
    head, _, tail = text.partition("  - {name: job")
    experiment = small(head + jobs + tail.partition("\n")[2])
    profiles = [profile(name, 0.2, 0.09, 100e6) for name in "abc"]
    found = plan_variant(experiment, experiment.variant("planned"), profiles)
    assert set(found.capacity_bps) == {"one", "two", "three"}
    assert found.worst == pytest.approx(1.0)
    starts = sorted(slot.shift_s for slot in found.time_shifts.values())
    starts.append(starts[0] + found.time_shifts["a"].period_s)
    assert all(b - a >= 0.09 for a, b in itertools.pairwise(starts))


def test_periods_that_differ_by_their_measurement_are_one() -> None:
    experiment = small()
    profiles = [
        profile(job.name, compute_s, 0.08, 90e6)
        for job, compute_s in zip(experiment.jobs, (0.1, 0.103), strict=True)
    ]
    one, other = plan_variant(
        experiment, experiment.variant("planned"), profiles
    ).time_shifts.values()
    assert one.period_s == other.period_s == pytest.approx(0.183 * 1.01)


def test_a_plan_from_the_variant_alone_of_a_run_folder(tmp_path: Path) -> None:
    document = experiment(variants={"cubic": "cubic"})
    document["variants"]["planned"] = {"cc": "cubic", "treatment": {"time_shifts": {}}}
    folder = make_run(tmp_path / "run", document)
    for name in ("iterations", "bursts"):  # as it is when the variant alone is done, and no other
        table = pd.read_csv(folder / f"{name}.csv")
        table[table["variant"] == ALONE].to_csv(folder / f"{name}.csv", index=False)
    planned = small(yaml.safe_dump(document))
    plans = plan_variants(planned, folder)
    assert list(plans) == ["planned"]
    starts = sorted(slot.shift_s for slot in plans["planned"].time_shifts.values())
    assert len(starts) == 4
    assert all(b - a > LONE_COMM_S for a, b in itertools.pairwise(starts))
    write_plans(folder, plans)
    written = json.loads((folder / "plan.json").read_text())
    assert written["schema"] == "mltcp-run-plan/1"
    assert written["variants"]["planned"]["time_shifts"]["job-2"].keys() == {
        "period_s",
        "shift_s",
    }
    assert plan_variants(planned.override(variants=["cubic"]), folder) == {}


def test_planned_jobs_start_in_slot_and_late_ones_on_arrival() -> None:
    text = TEXT.replace(
        "variants:\n", "  - {name: late, bytes: 1MB, compute: 100ms, start: 7s}\nvariants:\n"
    )
    experiment = small(text)
    time_shifts = {job.name: TimeShift(0.2, 0.01) for job in experiment.jobs}
    session = TimeShiftsSession(experiment, time_shifts)
    (group,) = tasks_of(experiment, experiment.variant("planned"), 1)
    tasks = [session.adapt(each) for each in group]
    assert [each.spec.start_delay_s for each in tasks] == [0.0, 0.0, 7.0]
    assert all(each.spec.time_shifts == TimeShift(0.2, 0.01) for each in tasks)
    (unplanned,) = tasks_of(experiment, experiment.variant("cubic"), 1)
    assert all(each.spec.time_shifts is None for each in unplanned)
    assert unplanned[0].spec.start_delay_s > 0
