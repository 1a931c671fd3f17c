# SPDX-License-Identifier: BSD-2-Clause
"""Jobs from JSON: `kubectl get … -A -o json`, and `sacct --json`.

Read are Workloads of Kueue (v1beta1 and v1beta2) and Jobs of Volcano (jobs.batch.volcano.sh). A
Workload's GPUs and nodes are those that were admitted; it has the name of its owner, as
`pytorchjob-bert-3f0a1` belongs to bert.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.own.entries import Clock, LeftOutError, LoggedJob, Reader, Row
from mltcp_tools.clusters.own.tables import sacct, share_of

T = TypeVar("T", dict[str, Any], list[Any], str)

_GPU = re.compile(r"(?:.*[/.-])?(?:gpus?(?:\.[a-z0-9-]+)?|mig-[1-7]g\.[0-9]+gb)")
"""Resources that are GPUs: nvidia.com/gpu, amd.com/gpu, nvidia.com/mig-1g.5gb, and the names that
Kueue's administrators give to classes of devices (DRA), as whole-gpus."""
_HOST = "kubernetes.io/hostname"
_WORDS = {dict: "a mapping", list: "a list", str: "text"}


def documents(text: str, file: str, notes: Counter[str]) -> Iterator[Reader]:
    """Readers of the entries of `sacct --json`, or of a list of Kubernetes objects. notes: what
    readers find missing -> number of jobs."""
    try:
        whole = json.loads(text)
        if isinstance(whole, dict) and isinstance(whole.get("jobs"), list):
            yield from _slurm(whole["jobs"], file)
            return
        items = whole["items"]
        kinds = [str(item["kind"]) for item in items]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"{file} is not a list of Kubernetes objects in JSON, as `kubectl get … -o json`"
            " prints it, and not what `sacct --json` prints."
        ) from None
    clock = Clock()
    for number, (kind, item) in enumerate(zip(kinds, items, strict=True)):
        place = f"{file}: items[{number}]"
        if kind not in ("Workload", "Job"):
            raise UsageError(
                f"{place}: kind {kind} is no Workload and no Job; list Kueue's workloads or"
                " Volcano's jobs.batch.volcano.sh."
            )
        yield lambda p=place, k=kind, i=item: _object(p, k, i, clock, notes)  # type: ignore[misc]


def _slurm(jobs: Sequence[object], file: str) -> Iterator[Reader]:
    clock, seen = Clock(), set[tuple[str, str]]()
    for number, job in enumerate(jobs):
        place = f"{file}: jobs[{number}]"
        yield lambda p=place, j=job: sacct(Row(p, _slurm_fields(p, j), clock), seen)  # type: ignore[misc]


def _slurm_fields(place: str, job: object) -> dict[str, str]:
    """The fields of an entry of `sacct --json` under the names of sacct's table."""
    if not isinstance(job, dict):
        raise UsageError(f"{place}: must be a mapping, not {job!r:.40}.")
    times = _under(place, job, "time", dict)
    names = {"Submit": "submission", "Start": "start", "End": "end", "suspended": "suspended"}
    # An unknown time is 0.
    at = {name: str(times.get(key) or "") for name, key in names.items()}
    state = _under(place, job, "state", dict).get("current") or ["unknown"]
    gpus = [
        f"gres/{_under(place, each, 'name', str)}={_whole(place, 'count', each.get('count'))}"
        for each in _under(place, job, "tres.allocated", list)
        if _under(place, each, "type", str) == "gres"
        and _under(place, each, "name", str).startswith("gpu")
    ]
    het, number = _under(place, job, "het", dict), str(job.get("job_id") or "")
    if _number(het.get("job_id")):
        number = f"{_number(het.get('job_id'))}+{_number(het.get('job_offset'))}"
    return at | {
        "JobID": number,
        "JobName": _under(place, job, "name", str),
        "State": str(state[0] if isinstance(state, list) else state),
        "AllocTRES": ",".join(gpus),
        "NodeList": _under(place, job, "nodes", str),
    }


def _number(value: object) -> int:
    """A number of Slurm's JSON, which may be in a mapping with whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class _Pods:
    """Pods that are alike. gpus: of each. placement: number of them on each node."""

    count: int
    gpus: float
    placement: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Found:
    """The facts of an object. times: its submission, start and end as text. idle_s: seconds between
    start and end without GPUs. earlier_s: seconds with GPUs before the start."""

    times: Mapping[str, str]
    pods: Sequence[_Pods]
    idle_s: float = 0.0
    earlier_s: float = 0.0


def _object(
    place: str, kind: str, item: Mapping[str, Any], clock: Clock, notes: Counter[str]
) -> LoggedJob:
    if kind == "Workload":
        found = _workload(place, item, notes)
    elif "tasks" in _under(place, item, "spec", dict):
        found = _volcano(place, item, clock)
    else:
        raise UsageError(
            f"{place}: is a plain Job, which doesn't say where its pods ran: list Kueue's workloads"
            " or Volcano's jobs.batch.volcano.sh, or write a CSV."
        )
    row = Row(place, {**found.times, "name": _name(place, kind, item)}, clock)
    times = row.times("submitted", "start", "end")
    placement: Counter[str] = Counter()
    for each in found.pods:
        for node, count in each.placement.items():
            placement[node] += int(count * each.gpus)
    gpus = sum(each.count * each.gpus for each in found.pods)
    known = {node: have for node, have in placement.items() if have}
    job = row.job("name", times, gpus, known if placement.total() == gpus else {})
    # What it held before counts as held just before the last start.
    start_s = max(job.submitted_s, job.start_s - found.earlier_s)
    return replace(job, start_s=start_s, idle_s=found.idle_s)


def _name(place: str, kind: str, item: Mapping[str, Any]) -> str:
    name = _under(place, item, "metadata.name", str)
    if kind != "Workload":
        return name
    for owner in _under(place, item, "metadata.ownerReferences", list):
        if owned := _under(f"{place}: metadata.ownerReferences", owner, "name", str):
            return owned
    match = re.fullmatch(r"[a-z0-9]+-(.+)-[0-9a-f]{5}", name)
    return match[1] if match else name


def _workload(place: str, item: Mapping[str, Any], notes: Counter[str]) -> _Found:
    inside = f"{place}: status.conditions"
    at, off = {}, set()
    for each in _under(place, item, "status.conditions", list):
        kind = _under(inside, each, "type", str)
        if _under(inside, each, "status", str) == "True":
            at[kind] = _under(inside, each, "lastTransitionTime", str)
        else:
            off.add(kind)
    if "Finished" in at and "Admitted" in off:
        raise LeftOutError("whose start is lost, as Kueue 0.15.0 to 0.15.2 did when a job finished")
    status = _under(place, item, "status", dict)
    earlier = "accumulatedPastExecutionTimeSeconds"
    earlier_s = _count(f"{place}: status", status, earlier, 0)
    if ("Evicted" in at or status.get("schedulingStats")) and not earlier_s:
        notes["was evicted; the list doesn't say how long it ran before, which isn't counted."] += 1
    times = {
        "submitted": _under(place, item, "metadata.creationTimestamp", str),
        "start": at.get("Admitted", ""),
        "end": at.get("Finished", ""),
    }
    assigned = {
        _under(place, each, "name", str): each
        for each in _under(place, item, "status.admission.podSetAssignments", list)
    }
    pods = []
    for number, pod in enumerate(_under(place, item, "spec.podSets", list)):
        own = f"{place}: spec.podSets[{number}]"
        count = _count(own, pod, "count", 1)
        gpus = _gpus_of_pod(own, pod)
        found = assigned.get(_under(own, pod, "name", str) or "main", {})
        nodes: Mapping[str, int] = {}
        if found:
            own = f"{place}: status.admission"
            count = _count(own, found, "count", count)
            usage = _gpus_in(own, _under(own, found, "resourceUsage", dict))
            gpus = usage / count if usage and count else gpus
            nodes = _assigned(own, _under(own, found, "topologyAssignment", dict))
        pods.append(_Pods(count, gpus, nodes))
    return _Found(times, pods, earlier_s=earlier_s)


def _assigned(place: str, found: Mapping[str, Any]) -> dict[str, int]:
    """Pods on each node of a topologyAssignment; empty where its lowest level isn't the host."""
    levels = _under(place, found, "levels", list)
    if not levels or levels[-1] != _HOST:
        return {}
    pods: Counter[str] = Counter()
    for domain in _under(place, found, "domains", list):
        host = (_under(place, domain, "values", list) or [""])[-1]
        pods[str(host)] += _count(place, domain, "count", 0)
    for each in _under(place, found, "slices", list):
        count = _count(place, each, "domainCount", 0)
        last = (_under(place, each, "valuesPerLevel", list) or [{}])[-1]
        own = _under(place, last, "individual", dict)
        before, behind = (_under(place, own, each, str) for each in ("prefix", "suffix"))
        roots = _under(place, own, "roots", list) or [_under(place, last, "universal", str)] * count
        names = [f"{before}{root}{behind}" for root in roots]
        counts = _under(place, each, "podCounts", dict)
        numbers = _under(place, counts, "individual", list)
        numbers = numbers or [_count(place, counts, "universal", 0)] * count
        for name, number in zip(names, numbers, strict=False):
            pods[name] += _whole(place, "podCounts", number)
    return dict(pods)


def _volcano(place: str, item: Mapping[str, Any], clock: Clock) -> _Found:
    """A Job of Volcano, which keeps all its phases: it held GPUs while it was Running."""
    inside = f"{place}: status.conditions"
    phases = [
        (_under(inside, each, "status", str), _under(inside, each, "lastTransitionTime", str))
        for each in _under(place, item, "status.conditions", list)
    ]
    begun = [number for number, (phase, _) in enumerate(phases) if phase == "Running"]
    times = {"submitted": _under(place, item, "metadata.creationTimestamp", str)}
    idle_s = 0.0
    if begun and phases[-1][0] in ("Completed", "Failed", "Aborted", "Terminated"):
        own = phases[begun[0] :]
        times |= {"start": own[0][1], "end": own[-1][1]}
        at = [Row(inside, {"time": text}, clock).time("time") for _, text in own]
        idle_s = sum(
            later - now
            for (phase, _), (now, later) in zip(own, pairwise(at), strict=False)
            if phase != "Running"
        )
    pods = []
    for number, task in enumerate(_under(place, item, "spec.tasks", list)):
        where = f"{place}: spec.tasks[{number}]"
        count = _count(where, task, "replicas", 1)
        pods.append(_Pods(count, _gpus_of_pod(where, task)))
    return _Found(times, pods, idle_s)


def _under(place: str, item: object, path: str, kind: type[T]) -> T:
    """The value at a path such as `spec.podSets` of an object; an empty one where it is missing."""
    for key in path.split("."):
        if item is not None and not isinstance(item, dict):
            raise UsageError(f"{place}: {path}: there is {item!r:.40} where {key} should be.")
        item = None if item is None else item.get(key)
    if item is None:
        return kind()
    if not isinstance(item, kind):
        raise UsageError(f"{place}: {path}: must be {_WORDS[kind]}, not {item!r:.40}.")
    return item


def _gpus_of_pod(place: str, pod: object) -> float:
    """Return the GPUs that a pod's containers ask for."""
    found = 0.0
    for container in _under(place, pod, "template.spec.containers", list):
        # A limit without a request is the request, too, as most GPUs are asked for.
        limits = _under(place, container, "resources.limits", dict)
        found += _gpus_in(place, limits | _under(place, container, "resources.requests", dict))
    return found


def _gpus_in(place: str, resources: Mapping[str, object]) -> float:
    return sum(
        _whole(place, name, value) * share_of(name)
        for name, value in resources.items()
        if _GPU.fullmatch(name)
    )


def _count(place: str, item: object, name: str, default: int) -> int:
    """A whole number of an object, or the default where it is missing."""
    if item is not None and not isinstance(item, dict):
        raise UsageError(f"{place}: there is {item!r:.40} where {name} should be.")
    return _whole(place, name, (item or {}).get(name, default))


def _whole(place: str, name: str, value: object) -> int:
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", str(value)):
        raise UsageError(f"{place}: {name}: must be a whole number, not {value!r:.40}.")
    return int(str(value))
