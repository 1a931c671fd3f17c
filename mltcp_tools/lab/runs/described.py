# SPDX-License-Identifier: BSD-2-Clause
"""The analysis's view of a run folder's experiment: one that was run, or a recording, which knows
nothing of the network."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mltcp_tools.base import values
from mltcp_tools.base.document import Section, read_section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_bytes, parse_seconds
from mltcp_tools.kernel.congestion_controls import CONGESTION_CONTROLS
from mltcp_tools.lab.experiments.fabric import read_fabric
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.links import Link, read_links
from mltcp_tools.lab.experiments.neighbours import Neighbour
from mltcp_tools.lab.experiments.reading import read_file, read_jobs, read_neighbours
from mltcp_tools.lab.experiments.variants import Variant, read_variants


@dataclass(frozen=True)
class DescribedExperiment:
    """An experiment or a recording; `document` is the file's content.

    links: by name, "" for the only one; in a fabric the slowest of each kind, as patterned.py knows
    it whole; {} for a recording. iterations: of jobs that don't have their own number.
    """

    links: dict[str, Link]
    jobs: dict[str, ExperimentJob]
    neighbours: dict[str, Neighbour]
    variants: dict[str, Variant]
    baseline: str | None
    iterations: int | None
    repetitions: int | None
    document: dict[str, Any] = field(repr=False)

    @property
    def recorded(self) -> bool:
        """Return whether attached jobs were recorded, over a network of which nothing is known."""
        return self.document.get("recorded") is True

    @property
    def stamps(self) -> bool:
        """Return whether TCP's segments carry timestamps, as they do by default."""
        return str(self.document.get("sysctls", {}).get("net.ipv4.tcp_timestamps", "1")) != "0"

    @property
    def rate_bps(self) -> int | None:
        """The bottlenecks' rates, bits per second in all; None where no link or a fabric is."""
        total = sum(link.rate for link in self.links.values())
        return None if "fabric" in self.document else total or None

    @property
    def isolated_cc(self) -> str | None:
        """The congestion control of the variant `alone`: the baseline's."""
        return self.variants[self.baseline].cc if self.baseline else None

    def base_of(self, variant: str) -> str | None:
        """The variant that `variant` is compared with: the first other one without a treatment that
        has its congestion control, or the one that this builds on; None where there is none."""
        cc = self.variants[variant].cc
        base = CONGESTION_CONTROLS[cc].base if cc in CONGESTION_CONTROLS else cc
        for name, other in self.variants.items():
            if name != variant and other.cc == base and not other.treatments:
                return name
        return None

    def iterations_of(self, job: str) -> int | None:
        """Return the number of the job's iterations; None where that isn't known."""
        return self.jobs[job].iterations or self.iterations


def read_described(path: Path) -> DescribedExperiment:
    """The experiment in `path`; a UsageError names file, line and field."""
    text = read_file(path)
    top = read_section(text, str(path), None)
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # PyYAML leaves the 13th month to Python
        raise UsageError(f"{path}: can't be read ({error}).") from None
    recorded = document.get("recorded")
    jobs = (
        map(_recorded_job, top.sections("jobs", None, empty=True)) if recorded else read_jobs(top)
    )
    # A recording's variant names all congestion controls that its connections had.
    variants = [Variant(each, each) for each in document["variants"]] if recorded else None
    known = {each.name: each for each in variants or read_variants(top)}
    return DescribedExperiment(
        links=_links(top),
        jobs={job.name: job for job in jobs},
        neighbours={each.name: each for each in read_neighbours(top, set())},
        variants=known,
        baseline=top.get("baseline", values.choice(list(known)), None),
        iterations=top.get("iterations", values.whole(1), None),
        repetitions=top.get("repetitions", values.whole(1), None),
        document=document,
    )


def _recorded_job(section: Section) -> ExperimentJob:
    """A job as record.py describes it: with a name and figures that no experiment would have."""
    return ExperimentJob(
        name=section.get("name", str),
        bytes=section.get("bytes", parse_bytes),
        compute=section.get("compute", parse_seconds),
        flows=section.get("flows", values.whole(0)),
        iterations=section.get("iterations", values.whole(1)),
    )


def _links(top: Section) -> dict[str, Link]:
    if "recorded" in top:
        return {}
    fabric = read_fabric(top)
    if fabric is not None:
        return {"access": fabric.access, "uplink": fabric.uplink}
    link, links = read_links(top)
    return links or {"": link}
