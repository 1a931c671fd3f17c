# SPDX-License-Identifier: BSD-2-Clause
"""The testbed's use of a backend where something else interferes; the backend is a stand-in."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mltcp_tools.base.errors import BusyError, MltcpError, UsageError
from mltcp_tools.kernel.congestion_controls import STANDARD
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.testbed import backend as testbed_backend
from mltcp_tools.lab.testbed.backend import VariantJobs, use_backend
from mltcp_tools.lab.testbed.borrowed import borrow
from mltcp_tools.lab.testbed.run_experiment import check_rates


class Backend:
    """Loaded, and held by sockets that are not ours."""

    name = "stand-in"
    names = STANDARD

    def status(self) -> Any:
        return SimpleNamespace(loaded=STANDARD)

    def unload(self) -> int:
        raise BusyError("1 sockets are still driven.")

    def iterations(self) -> Any:
        raise BusyError("Another process reads the iterations.")

    def set_job(self, job: object) -> None:
        pass

    def delete_job(self, job_id: int) -> None:
        raise MltcpError("The backend isn't loaded.")


def test_run_takes_over_what_a_killed_run_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testbed_backend, "get_backend", lambda name: Backend())
    monkeypatch.setattr(testbed_backend, "_SOCKETS_END_S", 0.0)
    (tmp_path / "stand-in.users").write_text("loaded\n")
    said: list[str] = []
    with use_backend(tmp_path, {"mltcp"}, said.append):
        assert said == []
    assert said == ["1 sockets are still driven."]
    assert (tmp_path / "stand-in.users").read_text() == "loaded\n"  # for the next to unload


def test_a_backend_that_goes_away_costs_no_measurements() -> None:
    backend: Any = Backend()
    with VariantJobs(backend, Variant("mltcp", "mltcp"), lambda number: number) as jobs:
        jobs.tag(ExperimentJob("a", 1_000_000, 0.1), [])
    assert (
        jobs.warning
        == "The job a couldn't be deleted after this variant: The backend isn't loaded."
    )


def test_sockets_missing_at_receiver_are_named_in_a_sentence() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MltcpError, match="0 of the 1 sockets"):
        borrow(os.getpid(), [("192.0.2.1", 1)])
    assert len(os.listdir("/proc/self/fd")) == before


def test_links_that_only_a_simulation_has_are_refused():
    text = (
        "name: e\nlink: {rate: RATE}\njobs: [{bytes: 1MB, compute: 1s}]\nvariants: {reno: {cc:"
        " reno}}"
    )
    check_rates(parse_experiment(text.replace("RATE", "30gbit"), "a.yaml"))
    with pytest.raises(
        UsageError, match="a link of 100 Gbit/s, and the testbed's links carry at most 30"
    ):
        check_rates(parse_experiment(text.replace("RATE", "100gbit"), "a.yaml"))
