# SPDX-License-Identifier: BSD-2-Clause
"""A log, a network and what is known of models, as a workload that can be replayed and asked about.

Models that nobody described are asked for all at once. What a job computes follows from its own
iterations where the log has them and nobody gave it (replay.py fits that). Nothing is made up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mltcp_tools.base.document import Section, read_section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted
from mltcp_tools.clusters.own.entries import LoggedJob
from mltcp_tools.clusters.own.logs import Log
from mltcp_tools.clusters.own.slurm import read_topology
from mltcp_tools.clusters.reading import parse_cluster, read_models
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.lab.planning.reading import read_text

REST = "*"
"""The model of a table that stands for all others."""
_ASKED = 20


def models_of_table(path: Path) -> dict[str, Any]:
    """The section `models` of a YAML file, as a workload has it; names are text, as 007 is."""
    section, values = _section(read_text(path), path, "models")
    read_models(section)
    return dict(zip(section, values.values(), strict=True))


def cluster_of(path: Path) -> dict[str, Any]:
    """The section `cluster` of a YAML file that has nothing else."""
    text = read_text(path)
    _, values = _section(text, path, "cluster")
    parse_cluster(text, str(path))
    return values


def _section(text: str, path: Path, name: str) -> tuple[Section, dict[str, Any]]:
    """The one section of a YAML file, with its places and as values."""
    section = read_section(text, str(path), [name]).section(name, None)
    if section is None:
        raise UsageError(f"{path} has no section `{name}`.")
    return section, dict(yaml.safe_load(text)[name])


def network_of(
    path: Path | None, rate: str | None, uplink: str | None, log: Log
) -> tuple[dict[str, object], list[str]]:
    """The section `cluster` of a YAML file, of Slurm's topology.conf, or of one switch without
    either, and what had to be assumed."""
    if path is not None and path.suffix != ".conf":
        if re.search("^- .*topology:", read_text(path), re.MULTILINE):
            raise UsageError(
                f"{path} is a topology.yaml of Slurm, which isn't read; write its switches as a"
                " topology.conf (SwitchName=… Nodes=…), and blocks as switches below one above all."
            )
        if rate or uplink:
            raise UsageError(f"{path} describes all links; leave out --rate and --uplink.")
        return cluster_of(path), []
    if rate is None:
        raise UsageError(
            "the rate of the servers' links is unknown: give --rate, such as 100gbit, or describe"
            " all links in YAML for --network."
        )
    if path is None:
        return one_switch(log.jobs, rate), ["topology"]
    section = read_topology(path, rate, uplink, gpus_of_servers(log.jobs))
    return section, [] if uplink else ["uplink"]


def topology_of(section: Mapping[str, object]) -> Topology:
    """The cluster that a section `cluster` describes."""
    return parse_cluster(yaml.safe_dump({"cluster": dict(section)}), "the network").topology


def document(
    log: Log,
    cluster: Mapping[str, object],
    models: Mapping[str, Any],
    assumed: Sequence[str] = (),
    inputs: Sequence[str] = (),
) -> str:
    """The workload as YAML; cluster: its section of that name. assumed, inputs: as a workload has
    them.

    models: by name; REST has any other. One whose jobs all stayed on one server sends nothing that
    counts, and needn't be there.
    """
    names = {job.model for job in log.jobs}
    inside = names - {job.model for job in log.jobs if len(job.placement) != 1}
    unknown = names - set(models)
    rest = models.get(REST)
    models = {name: each for name, each in models.items() if name != REST}
    models |= {name: {"size": "0B"} for name in unknown & inside}
    if rest is not None:
        models |= dict.fromkeys(unknown, rest)
    elif unknown - inside:
        raise _unknown(log, unknown - inside)
    origin_s = min(job.submitted_s for job in log.jobs)
    jobs = [_job(job, origin_s) for job in log.jobs]
    used_models = {name: each for name, each in models.items() if name in names}
    whole: dict[str, object] = {"inputs": list(inputs)} if inputs else {}
    whole["cluster"] = dict(cluster)
    if origin_s > 0:
        whole["origin"] = round(origin_s, 3)
    if assumed:
        whole["assumed"] = list(assumed)
    if log.other_hours:
        whole["parts"] = {"jobs": log.parts, "gpu_hours": round(log.other_hours, 3)}
    if used_models:
        whole["models"] = used_models
    whole["jobs"] = jobs
    return yaml.safe_dump(whole, sort_keys=False, default_flow_style=None, width=120)


def inputs(
    file: Path,
    log: Log,
    network: Path | None,
    cluster: Topology,
    given: Mapping[str, str | None],
    sizes: Sequence[str],
) -> list[str]:
    """Sentences on where a workload is from. given: rates and sizes of the command line; with that
    of servers' links, the log says how many GPUs there are. sizes: where bytes are from."""
    reasons = [f"{n} {reason}" for reason, n in log.left_out.items()]
    left_out = f"; left out: {', '.join(reasons)}" if reasons else ""
    if log.parts:
        left_out = f", {log.parts} of them on parts of GPUs, which aren't simulated{left_out}"
    links = "".join(f", {name} {value}" for name, value in given.items() if value)
    sizes_of = Counter(cluster.gpus_of.tolist()).most_common()
    each = " and ".join(f"{gpus} on {counted(n, 'server')}" for gpus, n in sizes_of)
    servers = f"{cluster.total_gpus} GPUs ({each})"
    source = "servers that had jobs, each with as many GPUs as the log's jobs held there at once"
    if network is not None and not given["servers' links"]:
        source = f"as {network.name} says"
    unplaced = sum(not job.placement for job in log.jobs)
    return [
        f"Jobs: {counted(len(log.jobs) + log.parts, 'job')} of {file.name}{left_out}.",
        f"Network: {network.name if network else 'one switch'}{links}.",
        f"Cluster: {servers}, {source}.",
        f"Bytes that models send: {', '.join(sizes) or 'none is needed'}.",
        *(f"The log doesn't say where {counted(n, 'job')} ran." for n in [unplaced] if n),
        *log.notes,
    ]


def _unknown(log: Log, models: Collection[str]) -> UsageError:
    """Asks for all of them at once; those that had most GPUs for longest stand first."""
    hours = dict.fromkeys(models, 0.0)
    for job in log.jobs:
        if job.model in hours:
            hours[job.model] += job.gpu_hours
    most = sorted(hours, key=lambda name: (-hours[name], name))[:_ASKED]
    listed = {name: {"size": "BYTES", "compute": "SECONDS"} for name in most}
    table = yaml.safe_dump(
        {"models": listed},
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=1000,
    )
    more = len(hours) - len(listed)
    without = f" and without {more} that had fewer GPU hours" if more else ""
    return UsageError(
        "Nothing says how many bytes these models send in an iteration: give counters of the"
        " servers that Prometheus kept with --counters (of jobs with servers to themselves for"
        f" several samples), or fill in this table for --models{without}. BYTES are those of a"
        " model's gradients, as 500MB; SECONDS what an iteration computes, as 180ms, and may be"
        " left out where the log has iterations."
        f' A model "{REST}" stands for all that nothing else describes.\n{table.rstrip()}'
    )


def gpus_of_servers(jobs: Iterable[LoggedJob]) -> dict[str, int]:
    """GPUs of each server, as far as jobs show: the most that jobs had on it at a time."""
    changes = sorted(
        (at_s, sign * gpus, node)
        for job in jobs
        for node, gpus in job.placement.items()
        for at_s, sign in ((job.start_s, 1), (job.end_s, -1))
    )
    held: Counter[str] = Counter()
    found: dict[str, int] = {}
    # Where one ends when the next begins, as whole seconds have it, the end is first.
    for _, gpus, node in changes:
        held[node] += gpus
        found[node] = max(held[node], found.get(node, 0))
    return found


def one_switch(jobs: Sequence[LoggedJob], rate: str) -> dict[str, object]:
    """The section `cluster` of one switch with a link of that rate to each server that had jobs."""
    servers = gpus_of_servers(jobs)
    if not servers:
        raise UsageError("The log doesn't say where jobs ran: describe the cluster with --network.")
    return {
        "links": [{"name": s, "ends": [s, "switch"], "rate": rate} for s in servers],
        "servers": [{"name": name, "gpus": gpus} for name, gpus in servers.items()],
    }


def _job(job: LoggedJob, origin_s: float) -> dict[str, object]:
    found: dict[str, object] = {
        "name": job.name,
        "model": job.model,
        "gpus": job.gpus,
        "arrival": f"{job.submitted_s - origin_s:.3f}s",
        "start": f"{job.start_s - origin_s:.3f}s",
        "took": f"{job.took_s:.3f}s",
    }
    if job.iterations is not None:
        found["iterations"] = job.iterations
    if job.placement:
        found["placement"] = dict(job.placement)
    return found
