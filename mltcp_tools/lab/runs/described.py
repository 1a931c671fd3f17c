# SPDX-License-Identifier: BSD-2-Clause
"""The analysis's view of a run folder's experiment, which can be read or can't.

It is read by those who read it for the run. Where they refuse it, the tables alone are used.
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
from mltcp_tools.lab.experiments.expect import Expect, read_expect
from mltcp_tools.lab.experiments.fabric import read_fabric
from mltcp_tools.lab.experiments.jobs import ExperimentJob
from mltcp_tools.lab.experiments.links import MTU, Link, read_links
from mltcp_tools.lab.experiments.neighbours import Neighbour
from mltcp_tools.lab.experiments.reading import read_jobs, read_neighbours

ALONE = "alone"


@dataclass(frozen=True)
class DescribedExperiment:
    """An experiment as far as it could be read; `document` is the file's content, or {}.

    rate_bps: the bottleneck's rate in bits per second, the sum where there are several, and None
    in a fabric. link_rates: name of a link ("" for the only one) -> its rate, bit/s. delay_s: what
    the link adds to the round trip, seconds. mtu: of the links, bytes. variants: name -> congestion
    control and its parameters as written, without `alone`. iterations: of jobs that don't say how
    many they run.
    """

    name: str = "unnamed"
    description: str = ""
    rate_bps: int | None = None
    link_rates: dict[str, int] = field(default_factory=dict)
    delay_s: float = 0.0
    mtu: int = MTU
    jobs: dict[str, ExperimentJob] = field(default_factory=dict)
    neighbours: dict[str, Neighbour] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    baseline: str | None = None
    iterations: int | None = None
    repetitions: int | None = None
    expect: Expect = field(default_factory=Expect)
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
    def reduces(self) -> bool:
        """Return whether jobs reduced tensors by collectives: links don't carry each job's bytes
        once.
        """
        return "collectives" in self.document

    @property
    def isolated_cc(self) -> str | None:
        """The congestion control of the variant `alone`: the baseline's."""
        cc = self.variants.get(self.baseline or "", {}).get("cc")
        return str(cc) if cc else None

    def base_of(self, variant: str) -> str | None:
        """The variant that `variant` is compared with: the one it names, else the first one without
        a treatment that has the congestion control its own builds on; None for a variant that
        builds on none."""
        described = self.variants.get(variant, {})
        if described.get("base") in self.variants:
            return str(described["base"])
        own = CONGESTION_CONTROLS.get(str(described.get("cc")))
        if own is None:
            return None
        plain = (name for name in self.variants if not self.treatments_of(name))
        return next((name for name in plain if self.variants[name].get("cc") == own.base), None)

    def treatments_of(self, variant: str) -> dict[str, Any]:
        """The treatments of a variant, name -> settings."""
        treatment = self.variants.get(variant, {}).get("treatment")
        return dict(treatment) if isinstance(treatment, dict) else {}

    def iterations_of(self, job: str) -> int | None:
        """Return the number of the job's iterations; None where that isn't known."""
        return self.jobs[job].iterations or self.iterations if job in self.jobs else None


def read_experiment(path: Path, problems: list[str]) -> DescribedExperiment:
    """The experiment in `path`; what can't be read is appended to `problems`, never raised."""
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

    links, delay_s = _links(top)
    rates = {name: link.rate for name, link in links.items()}
    variants = document.get("variants")
    variants = variants if isinstance(variants, dict) else {}
    return DescribedExperiment(
        name=str(document.get("name") or "unnamed"),
        description=str(document.get("description") or ""),
        rate_bps=None if "fabric" in document else sum(rates.values()) or None,
        link_rates=rates,
        delay_s=delay_s,
        mtu=min((link.mtu for link in links.values()), default=MTU),
        jobs={job.name: job for job in read_jobs(top)},
        neighbours={each.name: each for each in read_neighbours(top, set())},
        variants={
            str(name): dict(variant) if isinstance(variant, dict) else {}
            for name, variant in (variants.items())
            if name != ALONE
        },
        baseline=str(document["baseline"]) if document.get("baseline") else None,
        iterations=top.get("iterations", values.whole(1), None),
        repetitions=top.get("repetitions", values.whole(1), None),
        expect=read_expect(top, list(variants)),
        document=document,
    )


def _links(top: Section) -> tuple[dict[str, Link], float]:
    """The links by name, and the delay of the only one; none where these don't say what jobs need:
    those of a recording, which aren't known, and those of collectives."""
    if "recorded" in top or "collectives" in top:
        return {}, 0.0
    fabric = read_fabric(top)
    if fabric is not None:
        # The slowest link of each kind is enough; patterned.py knows the whole fabric.
        return {"access": fabric.access, "uplink": fabric.uplink}, 0.0
    link, links = read_links(top)
    return links or {"": link}, link.delay
