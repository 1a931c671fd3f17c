# SPDX-License-Identifier: BSD-2-Clause
"""The analysis's view of a run folder's experiment.

The readers that a run uses read it here, too. Where they refuse it, the tables alone are used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mltcp_tools.base import values
from mltcp_tools.base.document import Section, read_section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.congestion_controls import CONGESTION_CONTROLS
from mltcp_tools.lab.experiments.fabric import read_fabric
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.links import Link, read_links
from mltcp_tools.lab.experiments.neighbours import Neighbour
from mltcp_tools.lab.experiments.reading import read_jobs, read_neighbours
from mltcp_tools.lab.experiments.variants import ALONE


@dataclass(frozen=True)
class DescribedExperiment:
    """An experiment as far as it could be read; `document` is the file's content, or {}.

    links: by name, "" for the only one; in a fabric the slowest of each kind, as patterned.py knows
    it whole; {} for a recording. variants: name -> congestion control and its parameters as
    written, without `alone`. iterations: of jobs that don't have their own number.
    """

    links: dict[str, Link] = field(default_factory=dict)
    jobs: dict[str, ExperimentJob] = field(default_factory=dict)
    neighbours: dict[str, Neighbour] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    baseline: str | None = None
    iterations: int | None = None
    repetitions: int | None = None
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def recorded(self) -> bool:
        """Return whether attached jobs were recorded, over a network of which nothing is known."""
        return self.document.get("recorded") is True

    @property
    def stamps(self) -> bool:
        """Return whether TCP's segments carry timestamps, as they do by default."""
        sysctls = self.document.get("sysctls")
        settings = sysctls if isinstance(sysctls, dict) else {}
        return str(settings.get("net.ipv4.tcp_timestamps", "1")) != "0"

    @property
    def rate_bps(self) -> int | None:
        """The bottlenecks' rates, bits per second in all; None where no link or a fabric is."""
        total = sum(link.rate for link in self.links.values())
        return None if "fabric" in self.document else total or None

    @property
    def isolated_cc(self) -> str | None:
        """The congestion control of the variant `alone`: the baseline's."""
        cc = self.variants.get(self.baseline or "", {}).get("cc")
        return str(cc) if cc else None

    def base_of(self, variant: str) -> str | None:
        """The variant that `variant` is compared with: the first other one without a treatment that
        has its congestion control, or the one that this builds on; None where there is none."""
        cc = str(self.variants.get(variant, {}).get("cc"))
        base = CONGESTION_CONTROLS[cc].base if cc in CONGESTION_CONTROLS else cc
        for name, described in self.variants.items():
            if name != variant and described.get("cc") == base and not self.treatments_of(name):
                return name
        return None

    def treatments_of(self, variant: str) -> dict[str, Any]:
        """The treatments of a variant, name -> settings."""
        treatment = self.variants.get(variant, {}).get("treatment")
        return dict(treatment) if isinstance(treatment, dict) else {}

    def iterations_of(self, job: str) -> int | None:
        """Return the number of the job's iterations; None where that isn't known."""
        return self.jobs[job].iterations or self.iterations if job in self.jobs else None


def read_experiment(path: Path, problems: list[str]) -> DescribedExperiment:
    """The experiment in `path`; instead of raising errors it adds them to `problems`."""
    if not path.is_file():
        problems.append(f"{path.name} is missing; names and parameters come from the tables alone.")
        return DescribedExperiment()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
    except (yaml.YAMLError, OSError, ValueError, LookupError, ArithmeticError, RecursionError):
        # PyYAML leaves the 13th month, numbers of 5000 digits and the like to Python.
        problems.append(f"{path.name} is not readable YAML; the tables alone are used.")
        return DescribedExperiment()
    if not isinstance(document, dict):
        problems.append(f"{path.name} describes no experiment; the tables alone are used.")
        return DescribedExperiment()
    try:
        return view_experiment(document)
    except UsageError as error:
        problems.append(f"{path.name} can't be read ({error}); the tables alone are used.")
        return DescribedExperiment()


def view_experiment(document: dict[str, Any]) -> DescribedExperiment:
    """An experiment's document (the YAML file's content) as the analysis sees it; UsageError."""
    top = read_section(yaml.safe_dump(document, sort_keys=False), "experiment.yaml", None)

    variants = document.get("variants")
    variants = variants if isinstance(variants, dict) else {}
    return DescribedExperiment(
        links=_links(top),
        jobs={job.name: job for job in read_jobs(top)},
        neighbours={each.name: each for each in read_neighbours(top, set())},
        variants={
            str(name): dict(variant) if isinstance(variant, dict) else {}
            for name, variant in variants.items()
            if name != ALONE
        },
        baseline=str(document["baseline"]) if document.get("baseline") else None,
        iterations=top.get("iterations", values.whole(1), None),
        repetitions=top.get("repetitions", values.whole(1), None),
        document=document,
    )


def _links(top: Section) -> dict[str, Link]:
    if "recorded" in top:
        return {}
    fabric = read_fabric(top)
    if fabric is not None:
        return {"access": fabric.access, "uplink": fabric.uplink}
    link, links = read_links(top)
    return links or {"": link}
