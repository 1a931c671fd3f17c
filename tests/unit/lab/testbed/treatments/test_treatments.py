# SPDX-License-Identifier: BSD-2-Clause
"""Treatments of a variant: what its file may say, and that they are applied and undone in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mistakes import mistakes, refusal

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import ClientTask, tasks_of
from mltcp_tools.lab.experiments.treatments import (
    PrioritiesSettings,
    RatesSettings,
    TimeShiftSettings,
)
from mltcp_tools.lab.testbed.treatments import Sessions, check_treatments
from mltcp_tools.lab.testbed.treatments.base import TreatmentSession

TEXT = """\
name: small
link: {rate: 100mbit}
jobs:
  - {name: job, count: 2, bytes: 1MB, compute: 100ms}
variants:
  cubic: {cc: cubic}
  treated: {cc: mltcp_int, treatment: {rates: {source: host}}}
  order: {cc: reno, treatment: {priorities: {weight: idle, floor: 2%}}}
  planned: {cc: mltcp, treatment: {time_shifts: {room: 3%}}, slope: 2}
"""


def small(text: str = TEXT) -> Experiment:
    return parse_experiment(text, "small.yaml")


def test_settings_are_what_the_file_says() -> None:
    assert small().variant("treated").treatments == (RatesSettings("host"),)
    assert small().variant("order").treatments == (PrioritiesSettings("idle", 0.02),)
    assert small().variant("planned").treatments == (TimeShiftSettings(room=0.03),)
    assert small().variant("planned").parameters == {"slope": 2.0}
    assert small(small().to_yaml()) == small()
    assert small().variant("alone").treatments == ()


@mistakes(
    ("weight: idle", "weight: heavy", "'heavy' is not one of none, remaining-more"),
    ("floor: 2%", "floor: 20%", "outside"),
    ("source: host", "sorce: host", "did you mean source"),
    ("{time_shifts:", "{time_shift:", "did you mean time_shifts"),
    ("room: 3%", "room: -1%", "not a fraction"),
)
def test_impossible_settings(old: str, new: str, complaint: str) -> None:
    assert complaint in refusal(lambda text, _: small(text), TEXT, old, new)


@pytest.mark.parametrize(
    ("variant", "noun"),
    [("treated", "a variant with rates"), ("order", "a variant with priorities")],
)
def test_local_network_features_are_refused_across_machines(variant: str, noun: str) -> None:
    with pytest.raises(UsageError, match=f"small has {noun}, which doesn't work across machines"):
        check_treatments(small().override(variants=[variant]), across=True)
    check_treatments(small().override(variants=["cubic"]), across=True)


class Noted(TreatmentSession):
    """Writes down what is asked of it."""

    def __init__(self, name: str, notes: list[str], fails: str = "") -> None:
        self.name = name
        self.notes = notes
        self.fails = fails

    def _note(self, what: str) -> None:
        self.notes.append(f"{self.name} {what}")
        if what == self.fails:
            raise HostError("no")

    def __enter__(self) -> Noted:
        self._note("enters")
        return self

    def __exit__(self, *_: object) -> None:
        self._note("leaves")
        self.warning = f"{self.name} warns"

    def adapt(self, task: ClientTask) -> ClientTask:
        self._note("adapts")
        return task

    def record(self, folder: Path, variant: str, repetition: int, start_s: float) -> None:
        self._note(f"records {variant} {repetition}")


def test_sessions_are_undone_in_the_opposite_order(tmp_path: Path) -> None:
    notes: list[str] = []
    task = tasks_of(small(), small().variant("cubic"), 1)[0][0]
    with Sessions([Noted("a", notes), Noted("b", notes)], "variant") as sessions:
        assert sessions.adapt(task) is task
    sessions.record(tmp_path, 2, 0.0)
    assert notes == [
        *("a enters", "b enters", "a adapts", "b adapts", "b leaves", "a leaves"),
        *("a records variant 2", "b records variant 2"),
    ]
    assert sessions.warnings == ["a warns", "b warns"]


@pytest.mark.parametrize("fails", ["enters", "adapts"])
def test_what_fails_leaves_nothing(fails: str) -> None:
    notes: list[str] = []
    sessions = Sessions([Noted("a", notes), Noted("b", notes, fails)], "variant")
    task = tasks_of(small(), small().variant("cubic"), 1)[0][0]
    with pytest.raises(HostError), sessions:
        sessions.adapt(task)
    assert notes[-1] == "a leaves"
    assert ("b leaves" in notes) is (fails == "adapts")
