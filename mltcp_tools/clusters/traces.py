# SPDX-License-Identifier: BSD-2-Clause
"""Workloads from public traces: `sia:FILE`, `elasticflow:FILE`, `azure:FILE`.

sia: comma-separated time, application,
num_replicas, batch_size of siasosp23/artifacts; how long a job trains isn't in there and is taken
from what its application needs until it converges. elasticflow: jobs of pkusys/ElasticFlow with
their durations and iterations. azure: timestamp, context and generated tokens of requests, of
Azure/AzurePublicDataset.

A file that isn't what it should be gives a UsageError with its line and field.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.fapes.inference import Request
from mltcp_tools.clusters.models import MODELS
from mltcp_tools.clusters.own.entries import Row, text_of
from mltcp_tools.clusters.own.replay import calibrated
from mltcp_tools.clusters.reading import parse_cluster, parse_workload
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import (
    SEEDS,
    ClusterJob,
    Workload,
    alone_s,
    require_model,
)
from mltcp_tools.lab.planning.reading import read_text

ELASTICFLOW_MODELS = {
    "vgg16": "vgg16",
    "vgg19": "vgg16",
    "resnet50": "resnet50",
    "inception3": "inception",
    "bert": "bert",
    "gpt2": "gpt2",
    "deepspeech2": "deepspeech2",
}
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


def read_jobs(spec: str, topology: Topology, seed: int = 1) -> tuple[ClusterJob, ...]:
    """Jobs from `KIND:FILE`; jobs larger than the cluster are refused. seed: of their luck."""
    kind, _, file = spec.partition(":")
    if kind not in _READERS or not file:
        raise UsageError(
            f"{spec!r} names no trace of jobs; write one of"
            f" {', '.join(f'{each}:FILE' for each in _READERS)}."
        )
    jobs: list[ClusterJob] = []
    reader, arrival, gpus = _READERS[kind]
    for row, job in reader(file, topology):
        if jobs and job.arrival_s < jobs[-1].arrival_s:
            raise row.error(arrival, "earlier than the line before, so out of order")
        if job.gpus > topology.total_gpus:
            raise row.error(gpus, f"{job.gpus} GPUs, and the cluster has {topology.total_gpus}")
        jobs.append(replace(job, seed=seed * SEEDS + len(jobs)))
    if not jobs:
        raise UsageError(f"{file}:1: the trace has no job.")
    first = jobs[0].arrival_s
    return tuple(replace(job, arrival_s=job.arrival_s - first) for job in jobs)


def _table(file: str, needed: tuple[str, ...]) -> Iterator[Row]:
    reader = csv.reader(text_of(Path(file)).splitlines())
    header = next(reader, [])
    for name in needed:
        if name not in header:
            raise UsageError(f"{file}:1: {name}: no column of that name.")
    for fields in reader:
        if fields:
            place = f"{file}:{reader.line_num}"
            yield Row(place, dict(zip(header, fields, strict=False)))


def _sia(file: str, topology: Topology) -> Iterator[tuple[Row, ClusterJob]]:
    for row in _table(file, ("name", "time", "application", "num_replicas", "batch_size")):
        name = row.text("application")
        if name not in SIA:
            raise row.error("application", f"{name!r} is not one of {', '.join(SIA)}")
        batch, gpus = row.count("batch_size", 1), row.count("num_replicas", 1)
        samples, step_s, sample_s, noise = SIA[name]
        compute_s = step_s + sample_s * batch / gpus
        model = replace(MODELS[name], compute_s=compute_s, step_s=step_s, noise=noise / batch)
        iterations = max(1, round(samples / batch))
        yield row, ClusterJob(row.text("name"), model, gpus, iterations, row.time("time"))


def _elasticflow(file: str, topology: Topology) -> Iterator[tuple[Row, ClusterJob]]:
    needed = ("job_id", "submit_time", "model_name", "num_gpu", "duration", "iteration")
    for row in _table(file, needed):
        name = row.text("model_name")
        if name not in ELASTICFLOW_MODELS:
            raise row.error("model_name", f"{name!r} is not one of {', '.join(ELASTICFLOW_MODELS)}")
        iterations = row.count("iteration", 1)
        model = require_model(ELASTICFLOW_MODELS[name], MODELS)
        count, arrival_s = row.count("num_gpu", 1), row.time("submit_time")
        job = ClusterJob(row.text("job_id"), model, count, iterations, arrival_s)
        # The trace knows how long an iteration took; what isn't communication is computing.
        took_s = row.time("duration") / iterations
        sending_s = alone_s(model, count, topology) - model.compute_s
        compute_s = max(took_s - sending_s, took_s / 2)
        yield row, replace(job, model=replace(model, compute_s=compute_s))


_Reader = Callable[[str, Topology], Iterator[tuple[Row, ClusterJob]]]
_READERS: dict[str, tuple[_Reader, str, str]] = {
    "sia": (_sia, "time", "num_replicas"),
    "elasticflow": (_elasticflow, "submit_time", "num_gpu"),
}
"""Kind of a trace -> its reader, and its columns of arrivals and of GPUs."""


def read_requests(spec: str) -> tuple[Request, ...]:
    """Requests from `azure:FILE`, times in seconds since the first."""
    kind, _, file = spec.partition(":")
    if kind != "azure" or not file:
        raise UsageError(f"{spec!r} names no trace of requests; write azure:FILE.")
    requests: list[Request] = []
    first_s = 0.0
    for row in _table(file, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        at_s = row.time("TIMESTAMP")
        first_s = at_s if not requests else first_s
        if requests and at_s - first_s < requests[-1].arrival_s:
            raise row.error("TIMESTAMP", "earlier than the line before, so out of order")
        tokens = row.count("ContextTokens"), row.count("GeneratedTokens")
        requests.append(Request(at_s - first_s, *tokens))
    if not requests:
        raise UsageError(f"{file}:1: the trace has no request.")
    return tuple(requests)


def read_workload(file: Path, trace: str | None, seed: int | None = None) -> Workload:
    """The workload of a YAML file, or the jobs of a trace on the file's cluster.

    seed: of all that is drawn, in place of the file's own.
    """
    if trace is None:
        return parse_workload(read_text(file), str(file), seed)
    base = parse_cluster(read_text(file), str(file), seed)
    return replace(base, jobs=read_jobs(trace, base.topology, base.seed))


def read_draws(file: Path, trace: str | None, shorter: float, draws: int) -> list[Workload]:
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
