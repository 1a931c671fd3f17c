# SPDX-License-Identifier: BSD-2-Clause
"""Treatments of a variant: what its file may say, and that they are applied and undone in order."""

from __future__ import annotations

import dataclasses
import pkgutil
from pathlib import Path
from typing import ClassVar

import pytest
from support.mistakes import mistakes, refusal

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import Task, tasks_of
from mltcp_tools.lab.experiments.treatments import (
    TREATMENTS,
    PrioritiesSettings,
    RatesSettings,
)
from mltcp_tools.lab.simulator import treatments as simulator
from mltcp_tools.lab.simulator.modelled import modelled
from mltcp_tools.lab.simulator.treatments import base as simulator_base
from mltcp_tools.lab.testbed import treatments as testbed
from mltcp_tools.lab.testbed.treatments import Sessions, check_treatments
from mltcp_tools.lab.testbed.treatments import base as testbed_base
from mltcp_tools.lab.testbed.treatments.base import Session

TEXT = """\
name: small
link: {rate: 100mbit}
jobs:
  - {name: job, count: 2, bytes: 1MB, compute: 100ms}
variants:
  cubic: {cc: cubic}
  treated: {cc: mltcp_int, treatment: {rates: {source: host, target: 1ms, low: 50%, add: 3kB}}}
  order: {cc: reno, treatment: {priorities: {weight: idle, levels: 4, floor: 2%}}}
"""


def small(text: str = TEXT) -> Experiment:
    return parse_experiment(text, "small.yaml")


def test_settings_are_what_the_file_says() -> None:
    assert small().variant("treated").treatments == (RatesSettings("host", 1e-3, 0.5, 3000),)
    assert small().variant("order").treatments == (PrioritiesSettings("idle", 4, 0.02),)
    assert small(small().to_yaml()) == small()
    assert small().variant("alone").treatments == ()


def test_an_uplink_may_be_said() -> None:
    said = small(TEXT.replace("source: host", "source: network, uplink: 10gbit"))
    settings = said.variant("treated").treatment(RatesSettings)
    assert settings is not None
    assert settings.uplink == 10_000_000_000
    assert small(said.to_yaml()) == said
    assert "uplink" not in small().to_yaml()
    with pytest.raises(UsageError, match=r"host.*doesn't hear"):
        small(TEXT.replace("source: host", "source: host, uplink: 10gbit"))


def test_fields_of_the_kernels_struct() -> None:
    fields = RatesSettings("host", 1e-3, 0.5, 3000).fields()
    assert fields == {"target_us": 1000, "low": 1 << 15, "add_bytes": 3000, "host": 1}


def test_a_treated_variant_may_name_what_it_is_compared_with() -> None:
    treated = small(TEXT.replace("{cc: reno, t", "{cc: reno, base: cubic, t"))
    assert treated.variant("order").base == "cubic"
    with pytest.raises(UsageError, match="cubic takes no parameters"):
        small(TEXT.replace("{cc: cubic}", "{cc: cubic, base: order}"))


@mistakes(
    ("weight: idle", "weight: heavy", "'heavy' is not one of none, remaining-more"),
    ("levels: 4", "levels: 9", "not a whole number from 2 to 8"),
    ("floor: 2%", "floor: 20%", "outside"),
    ("target: 1ms", "target: 1s", "outside"),
    ("low: 50%", "lo: 50%", "did you mean low"),
)
def test_impossible_settings(old: str, new: str, complaint: str) -> None:
    assert complaint in refusal(lambda text, _: small(text), TEXT, old, new)


@pytest.mark.parametrize("name", TREATMENTS)
def test_a_treatment_is_applied_by_its_name(name: str) -> None:
    assert TREATMENTS[name].name == name
    assert issubclass(testbed.kind(name), testbed_base.Treatment)


def test_what_is_simulated_is_a_treatment_by_the_same_name() -> None:
    modules = {each.name for each in pkgutil.iter_modules(simulator.__path__)} - {"base"}
    assert modules
    assert modules <= set(TREATMENTS)
    assert all(issubclass(simulator.kind(name), simulator_base.Treatment) for name in modules)


@dataclasses.dataclass(frozen=True)
class Unheard(PrioritiesSettings):
    """A treatment that nobody but its class knows."""

    name: ClassVar[str] = "unheard"


def test_new_treatment_is_read_and_refused_if_not_modelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(TREATMENTS, Unheard.name, Unheard)
    experiment = small(TEXT.replace("{priorities:", "{unheard:"))
    assert experiment.variant("order").treatments == (Unheard("idle", 4, 0.02),)
    with pytest.raises(UsageError, match=r"unheard isn't modelled, only reno, .*priorities are"):
        modelled(experiment, ["order"])
    assert modelled(experiment)[1] == {"order": "unheard"}


def test_variant_has_named_treatments_and_its_own() -> None:
    assert testbed.names_in(small().variant("treated")) == ["mltcp", "rates"]
    assert testbed.names_in(small().variant("order")) == ["priorities"]


@pytest.mark.parametrize(
    ("variant", "noun"),
    [("treated", "a variant with rates"), ("order", "a variant with priorities")],
)
def test_local_network_features_are_refused_across_machines(variant: str, noun: str) -> None:
    with pytest.raises(UsageError, match=f"small has {noun}, which doesn't work across machines"):
        check_treatments(small().override(variants=[variant]), across=True)
    check_treatments(small().override(variants=["cubic"]), across=True)


class Noted(Session):
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

    def adapt(self, task: Task) -> Task:
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
