# SPDX-License-Identifier: BSD-2-Clause
"""Workloads from public traces: `sia:FILE`, `elasticflow:FILE`, `azure:FILE`.

sia: comma-separated time, application, num_replicas, batch_size of siasosp23/artifacts; how long a
job trains isn't in there and is taken from what its application needs until it converges.
elasticflow: jobs of pkusys/ElasticFlow with their durations and iterations. azure: timestamp,
context and generated tokens of requests, of Azure/AzurePublicDataset.

A file that isn't what it should be gives a UsageError with its line and field.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.fapes.inference import Request
from mltcp_tools.clusters.models import MODELS, Model
from mltcp_tools.clusters.own.entries import Clock, Row
from mltcp_tools.clusters.own.replay import calibrated
from mltcp_tools.clusters.reading import parse_cluster, parse_workload
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import (
    SEEDS,
    ClusterJob,
    Workload,
    alone_s,
)
from mltcp_tools.lab.planning.reading import read_text

ELASTICFLOW = {
    **{name: name for name in ("vgg16", "resnet50", "bert", "gpt2", "deepspeech2")},
    **{"vgg19": "vgg16", "inception3": "inception"},
}
"""Its models -> those of MODELS."""
SIA = {
    "bert": (88_000 * 3, 0.2233, 0.05825, 600),
    "cifar10": (50_000 * 60, 0.02038, 0.0006499, 6_600),
    "deepspeech2": (1_000 * 80, 0.1908, 0.02549, 2_400),
    "imagenet": (1_281_167 * 90, 0.07191, 0.004313, 6_000),
    "ncf": (994_000 * 10, 0.007511, 4.581e-07, 7_000_000),
    "yolov3": (16_551 * 50, 0.1763, 0.02651, 370),
}
"""Applications of Sia's workloads, as petuum/adaptdl measured them: samples until they converge
(data set times epochs); seconds of a step on one T4, and of it for each sample (least squares of
the relative errors on placements of one GPU: off by 1 to 5 % in the mean, yolov3 by 15 %); gradient
noise scale in samples. The last is the lower quartile over a training with the smallest batch: it
rises, so that most of a training loses less in large batches."""
_TRACES = {
    "sia": ("time", "name", "application", "num_replicas", "batch_size"),
    "elasticflow": ("submit_time", "job_id", "model_name", "num_gpu", "duration", "iteration"),
}
"""Kind of a trace of jobs -> its columns: arrivals, names, models, GPUs, and what else is read."""


def read_jobs(spec: str, topology: Topology, seed: int = 1) -> tuple[ClusterJob, ...]:
    """Jobs from `sia:FILE` or `elasticflow:FILE`; jobs larger than the cluster are refused. seed:
    of their luck."""
    kind = spec.partition(":")[0]
    if kind not in _TRACES:
        raise UsageError(f"{spec!r} names no trace; write sia:FILE or elasticflow:FILE.")
    jobs: list[ClusterJob] = []
    known: Mapping[str, object] = SIA if kind == "sia" else ELASTICFLOW
    _, name, application, replicas, *_ = _TRACES[kind]
    for row, arrival_s in _rows(spec, kind, _TRACES[kind]):
        if row.text(application) not in known:
            said = f"{row.text(application)!r} is not one of {', '.join(known)}"
            raise row.error(application, said)
        gpus = row.count(replicas, 1)
        if gpus > topology.total_gpus:
            raise row.error(replicas, f"{gpus} GPUs, and the cluster has {topology.total_gpus}")
        model, iterations = (_sia if kind == "sia" else _elasticflow)(row, gpus, topology)
        own = row.text(name), model, gpus, iterations, arrival_s
        jobs.append(ClusterJob(*own, seed=seed * SEEDS + len(jobs)))
    return tuple(jobs)


def _sia(row: Row, gpus: int, topology: Topology) -> tuple[Model, int]:
    """A job's model and iterations."""
    name, batch = row.text("application"), row.count("batch_size", 1)
    samples, step_s, sample_s, noise = SIA[name]
    compute_s = step_s + sample_s * batch / gpus
    model = replace(MODELS[name], compute_s=compute_s, step_s=step_s, noise=noise / batch)
    return model, max(1, round(samples / batch))


def _elasticflow(row: Row, gpus: int, topology: Topology) -> tuple[Model, int]:
    """A job's model and iterations; what isn't communication of an iteration is computing."""
    model, iterations = MODELS[ELASTICFLOW[row.text("model_name")]], row.count("iteration", 1)
    took_s = row.time("duration") / iterations
    sending_s = alone_s(model, gpus, topology) - model.compute_s
    return replace(model, compute_s=max(took_s - sending_s, took_s / 2)), iterations


def read_requests(spec: str) -> tuple[Request, ...]:
    """Requests from `azure:FILE`."""
    needed = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    return tuple(
        Request(arrival_s, row.count("ContextTokens"), row.count("GeneratedTokens"))
        for row, arrival_s in _rows(spec, "azure", needed)
    )


def _rows(spec: str, kind: str, needed: tuple[str, ...]) -> Iterator[tuple[Row, float]]:
    """Rows of `KIND:FILE`, and their seconds since the first. needed: columns, that of times
    first."""
    found, _, file = spec.partition(":")
    if found != kind or not file:
        raise UsageError(f"{spec!r} names no trace of this kind; write {kind}:FILE.")
    reader, clock = csv.reader(read_text(Path(file)).splitlines()), Clock()
    header = next(reader, [])
    for name in needed:
        if name not in header:
            raise UsageError(f"{file}:1: {name}: no column of that name.")
    times_s: list[float] = []
    for fields in filter(None, reader):
        row = Row(f"{file}:{reader.line_num}", dict(zip(header, fields, strict=False)), clock)
        times_s.append(row.time(needed[0]))
        if len(times_s) > 1 and times_s[-1] < times_s[-2]:
            raise row.error(needed[0], "earlier than the line before, so out of order")
        yield row, times_s[-1] - times_s[0]
    if not times_s:
        raise UsageError(f"{file}:1: the trace is empty.")


def read_workload(file: Path, trace: str | None, seed: int | None = None) -> Workload:
    """The workload of a YAML file, or the jobs of a trace on the file's cluster.

    seed: of all that is drawn, in place of the file's own.
    """
    if trace is None:
        return parse_workload(read_text(file), str(file), seed)
    base = parse_cluster(read_text(file), str(file), seed)
    return replace(base, jobs=read_jobs(trace, base.topology, base.seed))


def read_draws(file: Path, trace: str | None, draws: int, shorter: float = 1) -> list[Workload]:
    """So many draws of a workload, shorter by a factor; observed jobs are fitted once, and have
    other paths and random variation in each."""
    first = read_workload(file, trace)
    seeds = range(first.seed, first.seed + draws)
    if first.observed:
        first = calibrated(first)[0]
        found = [first.drawn(seed) for seed in seeds]
    else:
        found = [first, *(read_workload(file, trace, seed) for seed in seeds[1:])]
    return [each.shorter(shorter) for each in found]
