# SPDX-License-Identifier: BSD-2-Clause
"""Workloads in YAML.

    cluster: {servers: 32, gpus: 8, rate: 50gbit, leaf: 8, oversubscription: 4}
    models:                               # besides those of models.py, or other values for them
      mine: {compute: 150ms, size: 400MB, flows: 4, step: 20ms, noise: 8}
    jobs:                                 # either a list
      - {name: a, model: vgg16, gpus: 16, iterations: 2000, arrival: 0s}
    generate:                             # or draws
      {jobs: 200, load: 0.7, models: {vgg16: 1, bert: 2}, gpus: {8: 4, 16: 2}, hours: 2, jitter: 5%}
    seed: 1
    inputs: [Jobs of sacct.txt]           # sentences on where an imported cluster is from
    origin: 1772359200                    # seconds since 1970 of its time 0
    assumed: [uplink]                     # what nobody said of an imported cluster
    parts: {jobs: 3, gpu_hours: 7.5}      # what else jobs held, and isn't simulated

Of a job that was observed (`took`), `iterations` may be missing, and its model's `compute`: that
follows then from the iterations of the model's other jobs; see `parse_workload`.

`load` is the share of all GPUs that the jobs would keep busy without contention or queueing;
`hours` is their mean length.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Set
from dataclasses import replace

import numpy as np

from mltcp_tools.base.document import Section, read_section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_bytes, parse_fraction, parse_seconds
from mltcp_tools.base.values import whole
from mltcp_tools.clusters.models import MODELS, Model
from mltcp_tools.clusters.topology import FIELDS, Topology, positive, read_topology, regular
from mltcp_tools.clusters.workload import (
    SEEDS,
    ClusterJob,
    Generated,
    Workload,
    first_servers,
    generate,
    placed_s,
    require_model,
    sending_s,
)

_FIELDS = ["cluster", "models", "jobs", "generate", "seed", "inputs", "origin", "assumed", "parts"]
_JOB_FIELDS = ["name", "model", "gpus", "iterations", "arrival", "jitter"]
_OBSERVED_FIELDS = ["start", "took", "placement"]
_MODEL_FIELDS = ["compute", "size", "flows", "step", "noise"]
_GENERATE_FIELDS = ["jobs", "load", "models", "gpus", "hours", "jitter"]
COUNT = whole(1)
LEAST_COMPUTE = 0.02
"""Share of an iteration that a model computes at least where that follows from the iteration."""


def parse_workload(text: str, file: str, seed: int | None = None) -> Workload:
    """The workload that YAML `text` describes; a UsageError names file, line and field, and models
    without a computing time, neither given nor in observed iterations. seed: in place of the text's
    own."""
    top = read_section(text, file, _FIELDS)
    if ("jobs" in set(top)) == ("generate" in set(top)):
        raise top.error("needs either jobs or generate.")
    base = _without_jobs(top, seed)
    described, unknown = read_models(top.section("models", None))
    models = MODELS | described
    key = "jobs" if "jobs" in set(top) else "generate"
    with top.complaints(key):
        if key == "jobs":
            jobs = _read_jobs(top, models, base.topology, base.seed)
            return _completed(replace(base, jobs=jobs), unknown)
        draws = _read_draws(top)
        if needed := unknown & set(draws.models):
            raise _without_compute(needed)
        return replace(base, jobs=generate(base.topology, draws, base.seed, models))


def _completed(workload: Workload, unknown: Set[str]) -> Workload:
    """The workload with computing times and iterations that nobody gave; unknown: models without
    the former."""
    topology = workload.topology
    places = [dict(job.placement) or first_servers(job.gpus, topology) for job in workload.jobs]
    # Of jobs that send, and of others: inside a server, what is sent counts as computing.
    sending: dict[str, list[float]] = defaultdict(list)
    inside: dict[str, list[float]] = defaultdict(list)
    for job, place in zip(workload.jobs, places, strict=True):
        if job.model.name in unknown and job.took_s is not None and not job.guessed:
            each_s = job.took_s / job.iterations
            sends_s = sending_s(job.model, place, topology)
            own = sending if sends_s else inside
            own[job.model.name].append(max(LEAST_COMPUTE * each_s, each_s - sends_s))
    seen = inside | sending
    jobs: list[ClusterJob] = []
    missing: set[str] = set()
    for job, place in zip(workload.jobs, places, strict=True):
        name, compute_s = job.model.name, job.model.compute_s
        if name in seen:
            compute_s = float(np.median(seen[name]))
        elif name in unknown:
            if sending_s(job.model, place, topology) or job.took_s is None:
                missing.add(name)
            else:
                # It sends nothing, so that only how long it ran counts.
                compute_s = job.took_s / max(1, round(job.took_s))
        model = replace(job.model, compute_s=compute_s)
        iterations = job.iterations
        if job.took_s is not None and job.guessed:
            iterations = max(1, round(job.took_s / placed_s(model, place, topology)))
        jobs.append(replace(job, model=model, iterations=iterations))
    if missing:
        raise _without_compute(missing)
    return replace(workload, jobs=tuple(jobs), fitted=frozenset(seen))


def _without_compute(models: Collection[str]) -> UsageError:
    names = ", ".join(sorted(models)[:5]) + (" and others" if len(models) > 5 else "")
    return UsageError(
        f"nothing says how long an iteration of {names} computes: give `compute` in `models`,"
        " `iterations` of jobs in the log, or sizes from `--counters`."
    )


def parse_cluster(text: str, file: str, seed: int | None = None) -> Workload:
    """The cluster alone, with one job that stands for those of a trace; seed as above."""
    top = read_section(text, file, [each for each in _FIELDS if each not in ("jobs", "generate")])
    return _without_jobs(top, seed)


def _without_jobs(top: Section, given: int | None) -> Workload:
    section = top.section("cluster", FIELDS)
    seed = top.get("seed", COUNT, 1) if given is None else given
    parts = top.section("parts", ["jobs", "gpu_hours"])
    topology = regular(seed=seed) if section is None else read_topology(section, seed)
    return Workload(
        topology,
        (ClusterJob("none", Model("none", 1.0, 0), 1, 1),),
        seed,
        inputs=top.get("inputs", _read_texts, ()),
        origin_s=top.get("origin", positive, 0.0),
        assumed=top.get("assumed", _read_texts, ()),
        parts=(parts.get("jobs", whole(0)), parts.get("gpu_hours", positive)) if parts else (0, 0),
    )


def _read_texts(value: object) -> tuple[str, ...]:
    if not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        raise UsageError("must be a list of sentences.")
    return tuple(value)


def read_models(section: Section | None) -> tuple[dict[str, Model], Set[str]]:
    """Models of a section `models`, and the names of those without a computing time."""
    models: dict[str, Model] = {}
    unknown: set[str] = set()
    for name in section or ():
        assert section is not None
        each = section.section(name, _MODEL_FIELDS)
        assert each is not None
        if "compute" not in set(each):
            unknown.add(name)
        with section.complaints(name):
            models[name] = Model(
                name,
                each.get("compute", parse_seconds, 1.0),
                each.get("size", parse_bytes),
                each.get("flows", COUNT, Model.flows),
                each.get("step", parse_seconds, None),
                each.get("noise", positive, None),
            )
    return models, unknown


def _read_jobs(
    top: Section, models: Mapping[str, Model], topology: Topology, seed: int
) -> tuple[ClusterJob, ...]:
    jobs: list[ClusterJob] = []
    names: set[str] = set()
    for section in top.sections("jobs", [*_JOB_FIELDS, *_OBSERVED_FIELDS]):
        name = section.get("name", str, f"job-{len(jobs) + 1}")
        with section.complaints("model"):
            model = require_model(section.get("model", str), models)
        arrival_s = section.get("arrival", parse_seconds, 0.0)
        if jobs and arrival_s < jobs[-1].arrival_s:
            raise section.error("is earlier than the job before it; put jobs in order.", "arrival")
        if name in names:
            raise section.error(f"another job is called {name!r} already.", "name")
        names.add(name)
        took_s = section.get("took", lambda value: positive(parse_seconds(value)), None)
        known = took_s is None or "iterations" in set(section)
        job = ClusterJob(
            name,
            model,
            section.get("gpus", COUNT),
            section.get("iterations", COUNT) if known else 1,
            arrival_s,
            section.get("jitter", parse_fraction, 0.0),
            seed * SEEDS + len(jobs),
            section.get("start", parse_seconds, None),
            took_s,
            _read_placement(section, topology),
            not known,
        )
        jobs.append(job)
    return tuple(jobs)


def _read_placement(section: Section, topology: Topology) -> tuple[tuple[int, int], ...]:
    """(server, its GPUs) of an observed job; empty where that isn't known."""
    found = section.section("placement", None)
    if found is None:
        return ()
    numbers = {server.name: number for number, server in enumerate(topology.machines)}
    placed = []
    for name in found:
        if name not in numbers:
            raise found.error("the cluster has no such server.", name)
        gpus = found.get(name, COUNT)
        if gpus > topology.machines[numbers[name]].gpus:
            raise found.error(f"the server has {topology.machines[numbers[name]].gpus}.", name)
        placed.append((numbers[name], gpus))
    if sum(gpus for _, gpus in placed) != section.get("gpus", COUNT):
        raise section.error("must have as many GPUs as the job.", "placement")
    return tuple(sorted(placed))


def _read_draws(top: Section) -> Generated:
    section = top.section("generate", _GENERATE_FIELDS)
    assert section is not None
    default = Generated()
    models = section.section("models", None)
    gpus = section.section("gpus", None)
    return Generated(
        section.get("jobs", COUNT, default.jobs),
        section.get("load", positive, default.load),
        {name: models.get(name, positive) for name in models} if models else default.models,
        {_number(gpus, key): gpus.get(key, positive) for key in gpus} if gpus else default.gpus,
        section.get("hours", positive, default.hours),
        section.get("jitter", parse_fraction, 0.0),
    )


def _number(section: Section, key: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,5}", key):
        raise section.error("must be a number of GPUs.", key)
    return int(key)
