# SPDX-License-Identifier: BSD-2-Clause
"""Experiments: what an experiment file says, and the random draws that follow from it.

The README beside this file describes the file's fields; `reading.load_experiment` reads and
validates it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import exact_bytes, exact_seconds
from mltcp_tools.lab.emulator.patterns import Connection
from mltcp_tools.lab.experiments.fabric import Fabric
from mltcp_tools.lab.experiments.jobs import ExperimentJob, job_document, present
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.neighbours import OWN, Neighbour
from mltcp_tools.lab.experiments.variants import ALONE, Variant


@dataclass(frozen=True)
class Experiment:
    """A whole experiment; `load_experiment` makes one, `to_yaml` writes it back in full.

    link: the bottleneck; where there are several, `links`, the slowest of them. fabric: what these
    links are, where they are a fabric's.
    """

    name: str
    description: str
    link: Link
    links: dict[str, Link]
    fabric: Fabric | None
    sysctls: dict[str, str]
    jobs: tuple[ExperimentJob, ...]
    neighbours: tuple[Neighbour, ...]
    variants: tuple[Variant, ...]
    baseline: str
    iterations: int
    repetitions: int
    seed: int
    alone_iterations: int

    def variant(self, name: str) -> Variant:
        """The variant called `name`; `alone` is the baseline's congestion control under that
        name."""
        if name == ALONE:
            return dataclasses.replace(self.variant(self.baseline), name=ALONE, treatments=())
        return next(variant for variant in self.variants if variant.name == name)

    def job(self, name: str) -> ExperimentJob:
        """The job called `name`."""
        return next(job for job in self.jobs if job.name == name)

    def congestion_controls(self) -> dict[str, str]:
        """All congestion controls that run, each with what asks for it first, for messages."""
        asked = {variant.cc: f"variant {variant.name}" for variant in reversed(self.variants)}
        for neighbour in self.neighbours:
            if neighbour.cc != OWN:
                asked.setdefault(neighbour.cc, f"neighbour {neighbour.name}")
        return asked

    def iterations_of(self, job: ExperimentJob) -> int:
        """Return how many iterations `job` runs in every variant but `alone`."""
        return job.iterations or self.iterations

    def isolated_jobs(self) -> list[ExperimentJob]:
        """One job of each kind: those whose demand no earlier job has."""
        kinds: dict[tuple[Any, ...], ExperimentJob] = {}
        for job in self.jobs:
            kinds.setdefault(job.demand(), job)
        return list(kinds.values())

    def spines_of(
        self, repetition: int, job: ExperimentJob, connection: Connection
    ) -> tuple[int, int]:
        """The spines (from 1) that packets of the job's connection take ahead and back: the same in
        every variant of a repetition."""
        assert self.fabric is not None
        key = (self.seed, repetition, job.name, *connection)
        return self.fabric.spine(*key, "ahead"), self.fabric.spine(*key, "back")

    def job_seed(self, repetition: int, job: ExperimentJob) -> int:
        """Seed of the job's compute times: the same in every variant of a repetition."""
        return int(self._draws(repetition, job).generate_state(1)[0])

    def neighbour_seed(self, repetition: int, neighbour: Neighbour) -> int:
        """Seed of the neighbour's pauses: the same in every variant of a repetition."""
        number = len(self.jobs) + self.neighbours.index(neighbour)
        return int(self._sequence(repetition, number).generate_state(1)[0])

    def link_seed(self, repetition: int) -> int:
        """Seed of what happens on the link at random where it is simulated: the same in every
        variant of a repetition."""
        number = len(self.jobs) + len(self.neighbours)
        return int(self._sequence(repetition, number).generate_state(1)[0])

    def start_delay(self, repetition: int, job: ExperimentJob) -> float:
        """Seconds from the variant's start to the job's first iteration: the same in every
        variant."""
        if job.start is not None:
            return job.start
        rate = min((self.links[name].rate for name in job.links), default=self.link.rate)
        lone = job.compute + job.bytes * 8 / rate
        generator = np.random.default_rng(self._draws(repetition, job).spawn(1)[0])
        return float(generator.uniform(0.0, lone))

    def _draws(self, repetition: int, job: ExperimentJob) -> np.random.SeedSequence:
        return self._sequence(repetition, self.jobs.index(job))

    def _sequence(self, repetition: int, number: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(repetition, number))

    def override(
        self,
        *,
        variants: Collection[str] = (),
        iterations: int | None = None,
        repetitions: int | None = None,
        seed: int | None = None,
        alone: bool = True,
    ) -> Experiment:
        """A copy with what the command line asks for; jobs' own `iterations` scale along.

        Where `variants` leaves the baseline out, its first variant becomes the baseline.
        """
        changed = self
        if variants:
            known = [variant.name for variant in self.variants]
            for name in variants:
                if name not in known:
                    raise UsageError(
                        f"experiment {self.name} has no variant {name!r}; it has"
                        f" {', '.join(known)}."
                    )
            kept = tuple(variant for variant in self.variants if variant.name in variants)
            baseline = self.baseline if self.baseline in variants else kept[0].name
            changed = dataclasses.replace(changed, variants=kept, baseline=baseline)
        if iterations is not None:
            jobs = tuple(
                dataclasses.replace(
                    job, iterations=max(1, round(job.iterations * iterations / self.iterations))
                )
                if job.iterations
                else job
                for job in self.jobs
            )
            changed = dataclasses.replace(
                changed,
                jobs=jobs,
                iterations=iterations,
                alone_iterations=min(self.alone_iterations, iterations),
            )
        if repetitions is not None:
            changed = dataclasses.replace(changed, repetitions=repetitions)
        if seed is not None:
            changed = dataclasses.replace(changed, seed=seed)
        if not alone:
            changed = dataclasses.replace(changed, alone_iterations=0)
        return changed

    def to_yaml(self) -> str:
        """The experiment with every default filled in; loading it gives an equal one."""
        document: dict[str, Any] = {
            "name": self.name,
            "description": self.description,
            "link": _link_document(self.link),
            "links": {name: _link_document(link) for name, link in self.links.items()},
            "sysctls": dict(self.sysctls),
            "jobs": [job_document(job) for job in self.jobs],
            "neighbours": [_neighbour_document(each) for each in self.neighbours],
            "variants": {variant.name: variant.document() for variant in self.variants},
            "baseline": self.baseline,
            "iterations": self.iterations,
            "repetitions": self.repetitions,
            "seed": self.seed,
            "alone": {"iterations": self.alone_iterations},
        }
        if self.fabric is not None:
            parts = {"access": self.fabric.access, "uplink": self.fabric.uplink}
            shown = {key: _link_document(each) for key, each in parts.items()}
            document["fabric"] = self.fabric.document(shown)
            del document["links"]
        del document["link" if self.links else "links"]
        if not self.neighbours:
            del document["neighbours"]
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _link_document(link: Link) -> dict[str, Any]:
    rate = f"{link.rate}bit"
    if link.rate % 1_000_000 == 0:
        rate = f"{link.rate // 1_000_000}mbit"
    exact = {"queue": exact_bytes(link.queue), "delay": exact_seconds(link.delay)}
    return dataclasses.asdict(link) | {"rate": rate, "mtu": exact_bytes(link.mtu)} | exact


def _neighbour_document(neighbour: Neighbour) -> dict[str, Any]:
    document = dataclasses.asdict(neighbour)
    document["size"] = None if neighbour.size is None else exact_bytes(neighbour.size)
    document["think"] = exact_seconds(neighbour.think)
    return present(document)
