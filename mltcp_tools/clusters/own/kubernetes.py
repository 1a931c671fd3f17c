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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.own.entries import Clock, LoggedJob, Reader, Row
from mltcp_tools.clusters.own.tables import sacct, share_of

_GPU = re.compile(r"(?:.*[/.-])?(?:gpus?(?:\.[a-z0-9-]+)?|mig-[1-7]g\.[0-9]+gb)")
"""Resources that are GPUs: nvidia.com/gpu, amd.com/gpu, nvidia.com/mig-1g.5gb, and the names that
Kueue's administrators give to classes of devices (DRA), as whole-gpus."""
_Read = Callable[[str, Any], LoggedJob]
_SLURM = {
    "JobName": "name",
    "NodeList": "nodes",
    "Submit": "time.submission",
    "Start": "time.start",
    "End": "time.end",
    "suspended": "time.suspended",
}
"""Columns of sacct's table -> their places in an entry of its JSON."""


def documents(text: str, file: str) -> Iterator[Reader]:
    """Readers of the entries of `sacct --json`, or of a list of Kubernetes objects."""
    try:
        whole = json.loads(text)
        slurm = isinstance(whole.get("jobs"), list)
        items = whole["jobs" if slurm else "items"]
        kinds = ["sacct" if slurm else str(item["kind"]) for item in items]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"{file} is not a list of Kubernetes objects in JSON, as `kubectl get … -o json`"
            f" prints it, and not what `sacct --json` prints ({error})."
        ) from None
    clock = Clock()
    readers: dict[str, _Read] = {
        "Workload": partial(_workload, clock),
        "Job": partial(_job, clock),
        "sacct": partial(_slurm, clock, set[tuple[str, str]]()),
    }
    for number, (kind, item) in enumerate(zip(kinds, items, strict=True)):
        place = f"{file}: {'jobs' if slurm else 'items'}[{number}]"
        if kind not in readers:
            raise UsageError(
                f"{place}: kind {kind} is no Workload and no Job; list Kueue's workloads or"
                " Volcano's jobs.batch.volcano.sh."
            )
        yield partial(_entry, readers[kind], place, item)


def _entry(read: _Read, place: str, item: Any) -> LoggedJob:
    """An entry's job; a UsageError where it isn't what its program writes."""
    try:
        return read(place, item)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{place}: can't be read ({type(error).__name__}: {error}).") from None


def _get(item: Any, path: str, default: Any = None) -> Any:
    """The value at a path such as `spec.podSets`; the default where a part of it is missing."""
    for key in path.split("."):
        item = None if item is None else item.get(key)
    return default if item is None else item


def _slurm(clock: Clock, seen: set[tuple[str, str]], place: str, job: Any) -> LoggedJob:
    """An entry of `sacct --json`, which has the columns of sacct's table; an unknown time is 0."""
    state = _get(job, "state.current") or ["unknown"]
    gpus = [
        f"gres/{each['name']}={each['count']}"
        for each in _get(job, "tres.allocated", [])
        if each["type"] == "gres" and each["name"].startswith("gpu")
    ]
    number = str(job.get("job_id") or "")
    for kind, sign, part in (("het", "+", "job_offset"), ("array", "_", "task_id")):
        if whole := _number(_get(job, f"{kind}.job_id")):
            number = f"{whole}{sign}{_number(_get(job, f'{kind}.{part}'))}"
    fields = {name: str(_get(job, path) or "") for name, path in _SLURM.items()} | {
        "JobID": number,
        "State": str(state[0] if isinstance(state, list) else state),
        "AllocTRES": ",".join(gpus),
    }
    return sacct(Row(place, fields, clock), seen)


def _number(value: Any) -> int:
    """A number of Slurm's JSON, which may be in a mapping with whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return int(value or 0)


def _workload(clock: Clock, place: str, item: Mapping[str, Any]) -> LoggedJob:
    """A Workload of Kueue, which keeps where its last admission alone was."""
    at = {
        each["type"]: each["lastTransitionTime"]
        for each in _get(item, "status.conditions", [])
        if each["status"] == "True"
    }
    assigned = {each["name"]: each for each in _get(item, "status.admission.podSetAssignments", [])}
    gpus, placement = 0.0, Counter[str]()
    for pod in _get(item, "spec.podSets", []):
        own = assigned.get(_get(pod, "name", "main"), {})
        count = _get(own, "count", _get(pod, "count", 1))
        usage = _gpus_in(_get(own, "resourceUsage", {})) or count * _gpus_of_pod(pod)
        gpus += usage
        for node, pods in _assigned(_get(own, "topologyAssignment", {})).items():
            placement[node] += int(pods * usage / count)
    name = _get(item, "metadata.name", "")
    match = re.fullmatch(r"[a-z0-9]+-(.+)-[0-9a-f]{5}", name)
    owners = [each["name"] for each in _get(item, "metadata.ownerReferences", [])]
    times = {
        "name": next(iter(owners), match[1] if match else name),
        "submitted": _get(item, "metadata.creationTimestamp", ""),
        "start": at.get("Admitted", ""),
        "end": at.get("Finished", ""),
    }
    job = _logged(Row(place, times, clock), gpus, placement)
    earlier_s = int(_get(item, "status.accumulatedPastExecutionTimeSeconds", 0))
    evicted = "Evicted" in at or _get(item, "status.schedulingStats.evictions")
    lacks = "was evicted; the list doesn't say how long it ran before, which isn't counted."
    return replace(job, earlier_s=earlier_s, lacks=lacks if evicted and not earlier_s else "")


def _logged(row: Row, gpus: float, placement: Counter[str]) -> LoggedJob:
    times = row.times("submitted", "start", "end")
    whole = placement.total() == gpus
    known = {node: have for node, have in placement.items() if have and whole}
    return row.job("name", times, gpus, known)


def _assigned(found: Mapping[str, Any]) -> dict[str, int]:
    """Pods on each node of a topologyAssignment; empty where its lowest level isn't the host."""
    if _get(found, "levels", [""])[-1] != "kubernetes.io/hostname":
        return {}
    pods = Counter[str]()
    for domain in _get(found, "domains", []):
        pods[domain["values"][-1]] += domain["count"]
    for each in _get(found, "slices", []):
        last, counts = each["valuesPerLevel"][-1], each["podCounts"]
        own = _get(last, "individual", {})
        roots = own.get("roots") or [last.get("universal")] * each["domainCount"]
        numbers = counts.get("individual") or [counts.get("universal")] * each["domainCount"]
        for root, number in zip(roots, numbers, strict=False):
            pods[f"{own.get('prefix') or ''}{root}{own.get('suffix') or ''}"] += number
    return dict(pods)


def _job(clock: Clock, place: str, item: Mapping[str, Any]) -> LoggedJob:
    """A Job of Volcano, which keeps all its phases: it held GPUs while it was Running."""
    tasks = _get(item, "spec.tasks")
    if tasks is None:
        raise UsageError(
            f"{place}: is a plain Job, which doesn't say where its pods ran: list Kueue's workloads"
            " or Volcano's jobs.batch.volcano.sh, or write a CSV."
        )
    phases = [
        (each["status"], each["lastTransitionTime"]) for each in _get(item, "status.conditions", [])
    ]
    own = phases[[*(phase for phase, _ in phases), "Running"].index("Running") :]
    ended = bool(own) and own[-1][0] in ("Completed", "Failed", "Aborted", "Terminated")
    times = {
        "name": _get(item, "metadata.name", ""),
        "submitted": _get(item, "metadata.creationTimestamp", ""),
        "start": own[0][1] if ended else "",
        "end": own[-1][1] if ended else "",
    }
    job = _logged(
        Row(place, times, clock),
        sum(_get(task, "replicas", 1) * _gpus_of_pod(task) for task in tasks),
        Counter(),
    )
    at = [Row(place, {"time": text}, clock).time("time") for _, text in own]
    idle_s = sum(
        later - now
        for (phase, _), (now, later) in zip(own, pairwise(at), strict=False)
        if phase != "Running"
    )
    return replace(job, idle_s=idle_s)


def _gpus_of_pod(pod: Mapping[str, Any]) -> float:
    """Return the GPUs that a pod's containers ask for."""
    return sum(
        # A limit without a request is the request, too, as most GPUs are asked for.
        _gpus_in(_get(each, "resources.limits", {}) | _get(each, "resources.requests", {}))
        for each in _get(pod, "template.spec.containers", [])
    )


def _gpus_in(resources: Mapping[str, Any]) -> float:
    return sum(
        int(value) * share_of(name) for name, value in resources.items() if _GPU.fullmatch(name)
    )
