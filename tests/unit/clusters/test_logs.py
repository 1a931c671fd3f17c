# SPDX-License-Identifier: BSD-2-Clause
"""Logs of schedulers and Slurm's networks, as they are written and as they go wrong."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.own.importing import document, gpus_of_servers, one_switch
from mltcp_tools.clusters.own.logs import Log, models_of, read_log
from mltcp_tools.clusters.own.slurm import hosts, read_topology
from mltcp_tools.clusters.own.tables import SACCT
from mltcp_tools.clusters.reading import parse_workload

HEAD = "JobID|JobName|Submit|Start|End|State|AllocTRES|NodeList"
JOBS = f"""\
{HEAD}
7|vgg16-1|2026-03-01T10:00:00|2026-03-01T10:01:00|2026-03-01T11:01:00|COMPLETED|cpu=64,gres/gpu=8|n[1-2]
7.0|python|2026-03-01T10:01:00|2026-03-01T10:01:00|2026-03-01T11:01:00|COMPLETED|gres/gpu=8|n[1-2]
8|bert|2026-03-01T10:00:30|2026-03-01T10:02:00|2026-03-01T10:32:00|COMPLETED|gres/gpu:a100=8|n3,n4
9|bert|2026-03-01T10:05:00|2026-03-01T10:06:00|2026-03-01T10:07:00|CANCELLED by 0|gres/gpu=8|n3
10|prep|2026-03-01T10:05:00|2026-03-01T10:06:00|2026-03-01T10:07:00|COMPLETED|cpu=8|n3
"""
CSV = "name,submitted,start,end,gpus,nodes,model,iterations\n"


def read(tmp_path: Path, text: str) -> Log:
    (tmp_path / "log").write_text(text)
    return read_log(tmp_path / "log")


def lines(*rows: str, head: str = HEAD) -> str:
    return "\n".join([head, *rows]) + "\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n1", ["n1"]),
        ("n[1-3],m7", ["n1", "n2", "n3", "m7"]),
        ("gpu[08-10,12]-ib", ["gpu08-ib", "gpu09-ib", "gpu10-ib", "gpu12-ib"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
    ],
)
def test_lists_of_hosts(text: str, found: list[str]) -> None:
    assert hosts(text) == found


@pytest.mark.parametrize("text", ["n[1-", "n[a-b]", "n[1-999999999]", "a b", "n[1-90000]m[1-9]"])
def test_text_that_is_no_list_of_hosts_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        hosts(text)


@pytest.mark.parametrize(
    ("names", "models"),
    [
        (["resnet-18", "resnet-50", "resnet-101"], ["resnet-18", "resnet-50", "resnet-101"]),
        (["vgg16-1", "vgg16-2", "vgg16-4"], ["vgg16"] * 3),
        (["llama-3.2-1", "llama-3.2-2"], ["llama-3.2"] * 2),
        (["resnet-50-run5", "t5_run19", "t5-Run_7"], ["resnet-50", "t5", "t5"]),
        (["42", "-7"], ["42", "-7"]),
        (["bert-81", "vgg16-82", "bert-84", "t5-85"], ["bert", "vgg16", "bert", "t5"]),
    ],
)
def test_only_numbers_that_count_jobs_are_cut(names: list[str], models: list[str]) -> None:
    assert list(models_of(names).values()) == models


def test_jobs_of_sacct(tmp_path: Path) -> None:
    log = read(tmp_path, JOBS)
    assert [(job.name, job.gpus, dict(job.placement)) for job in log.jobs] == [
        ("vgg16-1.7", 8, {"n1": 4, "n2": 4}),
        ("bert.8", 8, {"n3": 4, "n4": 4}),
        # That was cancelled, after it had its GPUs for a minute.
        ("bert.9", 8, {"n3": 8}),
    ]
    assert log.jobs[0].took_s == 3600
    assert log.left_out == {"without gres/gpu in AllocTRES": 1}


def test_sacct_without_a_header_is_read_in_the_documented_order(tmp_path: Path) -> None:
    assert HEAD.replace("|", ",") in SACCT
    assert read(tmp_path, JOBS.partition("\n")[2]).jobs == read(tmp_path, JOBS).jobs
    with pytest.raises(
        UsageError,
        match="log:1: has other columns, and no header; list them by `TZ=UTC sacct -aPXD",
    ):
        read(tmp_path, "7|bert|COMPLETED\n")


def test_time_while_suspended_is_subtracted(tmp_path: Path) -> None:
    rows = [f"{n}|a|0|0|100000|COMPLETED|gres/gpu=8|n1|{t}" for n, t in enumerate(("01:00:00", ""))]
    rows += ["3|a|0|0|200000|COMPLETED|gres/gpu=8|n1|1-00:00:01", "4|a|0|0|9|FAILED|gres/gpu=1|n|9"]
    log = read(tmp_path, lines(*rows, head=f"{HEAD}|Suspended"))
    assert [job.took_s for job in log.jobs] == [96_400, 100_000, 113_599]
    assert log.left_out == {"that was suspended all the time": 1}


def test_a_heterogeneous_job_is_one_job(tmp_path: Path) -> None:
    rows = [
        "7+0|train|0|5|100|COMPLETED|gres/gpu=8|n[1-2]",
        "7+1|train|0|5|100|COMPLETED|gres/gpu=1|n3",
        "8|other|0|5|100|COMPLETED|gres/gpu=4|n4",
    ]
    found = {job.name: job for job in read(tmp_path, lines(*rows)).jobs}
    assert found.keys() == {"train.7", "other.8"}
    assert (found["train.7"].gpus, found["train.7"].placement) == (9, {"n1": 4, "n2": 4, "n3": 1})
    ids = [
        {"job_id": {"set": True, "number": 7}, "job_offset": {"set": True, "number": n}}
        for n in (0, 1)
    ]
    entries = [slurm_json(job_id=7 + n, het=het) for n, het in enumerate(ids)]
    (job,) = read(tmp_path, json.dumps({"jobs": entries})).jobs
    assert (job.gpus, job.placement) == (16, {"n1": 8, "n2": 8})


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=8,gres/gpu=8,gres/gpu:a100=8", 8),
        ("gres/gpu:a100=4,gres/gpu=4,mem=1G", 4),
    ],
)
def test_gpus_of_types_are_counted_once(tmp_path: Path, tres: str, gpus: int) -> None:
    name = 'say "hi|ho"'
    (job,) = read(tmp_path, lines(f"1|{name}|0|1|9|COMPLETED|{tres}|n1")).jobs
    assert (job.gpus, job.name) == (gpus, f"{name}.1")


def test_parts_of_gpus_keep_their_gpu_hours(tmp_path: Path) -> None:
    rows = [
        f"{n}|a|0|0|7200|COMPLETED|{tres}|n1"
        for n, tres in enumerate(
            ("gres/gpu=8", "gres/gpu=1,gres/gpu:a100_3g.20gb=1", "gres/gpu:1g.10gb=2")
        )
    ]
    log = read(tmp_path, lines(*rows))
    assert [job.gpus for job in log.jobs] == [8]
    assert (log.parts, log.other_hours) == (2, pytest.approx(2 * 5 / 7, abs=1e-3))
    log = read(tmp_path, CSV + "a,0,0,7200,0.5,n1,m,\nb,0,0,7200,8.0,n1,m,\n")
    assert ([job.gpus for job in log.jobs], log.parts, log.other_hours) == ([8], 1, 1.0)


def test_bad_rows_are_counted_unless_they_are_most(tmp_path: Path) -> None:
    rows = ["a,0,1,9,8,n1,m,1", "c,0,soon,9,8,n1,m,1", "d,0,1,9,8.0,n1,m,1"]
    rows += ["e, f,0,1,9,8,n1,m,1", "g,0,1,9,8,n1,m,1"]
    log = read(tmp_path, CSV + "\n".join(rows) + "\n")
    assert [job.name for job in log.jobs] == ["a", "d", "g"]
    ((wrong, count),) = log.left_out.items()
    assert re.search(r"can't be read \(first .*log:3: start: 'soon' is no time", wrong)
    assert count == 2
    with pytest.raises(UsageError, match="log:3: start: 'soon' is no time"):
        read(tmp_path, CSV + "\n".join(rows[:2]) + "\n")


def slurm_json(**changed: object) -> dict[str, object]:
    """An entry of `sacct --json`."""
    gpus = [
        {"type": "cpu", "name": "", "id": 1, "count": 64},
        {"type": "gres", "name": "gpu", "id": 1001, "count": 8},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 8},
    ]
    entry: dict[str, object] = {
        "job_id": 7,
        "name": "vgg16-1",
        "time": {"submission": 1772359200, "start": 1772359260, "end": 1772362860, "suspended": 60},
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "tres": {"allocated": gpus, "requested": []},
        "nodes": "n[1-2]",
        "steps": [],
    }
    return entry | changed


def test_sacct_in_json_says_what_the_table_does(tmp_path: Path) -> None:
    running = slurm_json(job_id=8, time={"submission": 1, "start": 2, "end": 0})
    old = slurm_json(job_id=9, state={"current": "COMPLETED"})
    cpus = slurm_json(job_id=10, tres={"allocated": []})
    log = read(tmp_path, json.dumps({"jobs": [slurm_json(), running, old, cpus]}))
    (job, other) = log.jobs
    assert (job.gpus, job.placement, job.model) == (8, {"n1": 4, "n2": 4}, "vgg16")
    assert (job.start_s - job.submitted_s, job.took_s) == (60, 3540)
    assert other.id == "9"
    assert log.left_out == {"completed": 1, "without gres/gpu in AllocTRES": 1}


@pytest.mark.parametrize(
    "entry", [5, None, {"time": 3}, {"tres": {"allocated": [{"type": "gres", "name": 5}]}}]
)
def test_malformed_entries_of_sacct_are_refused(tmp_path: Path, entry: object) -> None:
    with pytest.raises(UsageError, match=r"log: jobs.0.: can't be read"):
        read(tmp_path, json.dumps({"jobs": [entry]}))


@pytest.mark.parametrize(("ids", "noted"), [((1, 2), "sacct -aPXD"), ((1, 1), ": 1 later run.")])
def test_requeues_and_missing_earlier_runs_are_noted(
    tmp_path: Path, ids: tuple[int, int], noted: str
) -> None:
    line = "%d|bert|%d|%d|%d|%s|gres/gpu=8|n1"
    rows = [line % (ids[0], 0, 1, 9, "NODE_FAIL"), line % (ids[1], 10, 11, 19, "COMPLETED")]
    notes = read(tmp_path, lines(*rows)).notes
    assert [noted in note for note in notes] == [True]


def test_jobs_that_never_ran_or_still_do_are_left_out(tmp_path: Path) -> None:
    job = "%s|bert|2026-03-01T10:00:00|%s|%s|%s|gres/gpu=8|%s"
    at = "2026-03-01T1%d:00:00"
    rows = [
        job % (1, at % 1, at % 2, "COMPLETED", "n1"),
        job % (2, at % 1, "Unknown", "RUNNING", "n1"),
        # The end of its time limit.
        job % (5, at % 1, at % 9, "RUNNING", "n1"),
        job % (3, "Unknown", "Unknown", "PENDING", "None assigned"),
        job % (4, at % 1, at % 1, "CANCELLED by 7", "None assigned"),
        # Logs that were put together, and a requeued job.
        job % (1, at % 1, at % 2, "COMPLETED", "n1"),
        job % (1, at % 3, at % 4, "COMPLETED", "n1"),
    ]
    log = read(tmp_path, lines(*rows))
    assert [job.name for job in log.jobs] == ["bert.1", "bert.1#2"]
    assert log.left_out == {"running": 2, "pending": 1, "that took no time": 1, "listed twice": 1}


def test_an_end_in_the_future_is_left_out_and_counted(tmp_path: Path) -> None:
    line = "%s,2026-03-01T10:00:00,2026-03-01T10:00:00,%s,8,n1,m,\n"
    log = read(tmp_path, CSV + line % ("a", "2026-03-01T11:00:00") + line % ("b", "2036-03-01"))
    assert [job.name for job in log.jobs] == ["a"]
    assert log.left_out == {"that ends in the future, as a running job's time limit": 1}


def test_local_times_are_read_on_a_day_of_clock_change(tmp_path: Path) -> None:
    rows = [
        "bert,2026-10-25T01:30:00,2026-10-25T02:50:00,2026-10-25T02:10:00,8,n1,,",
        "bert,2026-10-25T02:50:00,2026-10-25T02:10:00,2026-10-25T04:00:00,8,n1,,",
        "bert,2026-10-26T02:50:00,2026-10-26T03:00:00,2026-10-26T04:00:00,8,n1,,",
    ]
    log = read(tmp_path, CSV + "\n".join(rows) + "\n")
    assert len(log.jobs) == 1
    assert set(log.left_out) == {"that ended before it began", "that began before it was submitted"}


@pytest.mark.parametrize("none", ["", "NaT", "nan", "None", "N/A"])
def test_words_for_unknown_values_are_understood(tmp_path: Path, none: str) -> None:
    rows = [f"none,0,1,9,8,{none},{none},{none}", f"b,0,1,{none},8,n1,,", f"c,0,1,9,{none},n1,,"]
    log = read(tmp_path, CSV + "\n\n".join(rows) + "\n")
    assert [(job.name, job.model, job.placement) for job in log.jobs] == [("none", "none", {})]
    assert log.left_out == {"without a start or an end": 1, "without GPUs": 1}


def test_names_of_any_kind_come_through(tmp_path: Path) -> None:
    names = ["模型, 7", "yes: [no]", "null", "1e3", "- x", "a\x1b[31mb", "x\ny", "<b>&", "12"]
    table = io.StringIO()
    csv.writer(table).writerows([name, 0, 1, 9, 8, "n1;n2", "bert", ""] for name in names)
    log = read(tmp_path, CSV + table.getvalue())
    found = {job.name for job in log.jobs}
    assert found == {*names} - {"a\x1b[31mb", "x\ny"} | {"a [31mb", "x y"}
    text = document(log, one_switch(log.jobs, "10gbit"), {"bert": {"size": "9MB", "compute": "1s"}})
    assert {job.name for job in parse_workload(text, "w").jobs} == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JobID JobName\n----- -------\n7 bert\n", "log:1: its fields must be separated by |"),
        (CSV + 'bert,0,1,9,8,n1,,\n"bert,0,1,9,8,n1,,\n', "log:3: .*; is a quote open before it"),
        (CSV + '"' + 200_000 * "x" + '",0,1,9,8,n1,,\n', "log:2: field larger than"),
        (CSV + "bert, big,0,1,9,8,n1,,\n", "log:2: has 9 fields, and the header has 8; put a name"),
        ("name,name,submitted,start,end,gpus\n", "log:1: there are two columns name"),
        (CSV + "bert,0,1772359200000,1772362800000,8,,,\n", "2: start: .*; divide milliseconds"),
        (CSV + "bert,0,0,9,8,,,\nbert,,1772359200,1772362800,8,,,\n", "20513 days apart"),
        (CSV + "a,0,1,9,8,,,\nb,,2026-03-01,2026-03-02,8,,,\n", "3: start: is without a zone, and"),
        (lines(f"7|a|0|1|9|COMPLETED|gres/gpu={10**20}|n1"), "is no number of GPUs"),
        (lines("7|a|0|1|9|X|gres/gpu=1|n1|long", head=f"{HEAD}|Suspended"), "2: Suspended: 'long'"),
        ("{" * 100_000, "is not a list of Kubernetes objects"),
        (CSV + "a,0,1,9,-8,,m,1\n", "2: gpus: must be a whole number"),
        (CSV + "a,0,1,9,1,n1;n2,m,1\n", "2: nodes: 2 of them, and 1 GPU\\."),
        (CSV + "a,0,1,9,8,,m,0\n", "2: iterations: must be a whole number of 1 or more"),
        ("\n", "log is empty; it needs"),
        ('{"items": [{"kind": "PyTorchJob"}]}', "items.0.: kind PyTorchJob is no Workload and no"),
    ],
)
def test_malformed_logs_are_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(tmp_path, text)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("nodes", ["n[1-2]", "n1 n2", "n1, n2"])
def test_tables_of_spreadsheets_are_read(tmp_path: Path, line_end: str, nodes: str) -> None:
    text = f"Name;Submitted;Start;End;GPUs;Nodes;Iterations\nbert;0;1;9;8.0;{nodes};500.0\n"
    (tmp_path / "log").write_bytes(text.replace("\n", line_end).encode("utf-8-sig"))
    (job,) = read_log(tmp_path / "log").jobs
    assert (job.gpus, job.placement, job.iterations) == (8, {"n1": 4, "n2": 4}, 500)
    (tmp_path / "log").write_bytes((CSV + "bért,0,1,9,8,,m,1\n").encode("latin1"))
    with pytest.raises(UsageError, match="log isn't UTF-8 text"):
        read_log(tmp_path / "log")


def test_shared_servers_have_gpus_for_all_their_jobs(tmp_path: Path) -> None:
    rows = ["a,0,0,10,4,n1,m,1", "b,0,2,10,4,n1,m,1", "c,0,10,20,4,n1;n2,m,1"]
    log = read(tmp_path, CSV + "\n".join(rows) + "\n")
    assert gpus_of_servers(log.jobs) == {"n1": 8, "n2": 2}


TIMES = ["2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z", "2026-03-01T11:01:00Z"]


def kube(kind: str) -> dict[str, Any]:
    """A list of one job of 2 pods with 4 GPUs each."""
    container = {"resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "8"}}}
    template = {"spec": {"containers": [container]}}
    status: dict[str, Any] = {}
    if kind == "Workload":
        spec: dict[str, Any] = {"podSets": [{"name": "main", "count": 2, "template": template}]}
        types = {"Admitted": TIMES[1], "Finished": TIMES[2]}
        status["conditions"] = [
            {"type": name, "status": "True", "lastTransitionTime": at} for name, at in types.items()
        ]
    else:
        spec = {"tasks": [{"replicas": 2, "template": template}]}
        phases = {"Pending": TIMES[0], "Running": TIMES[1], "Completed": TIMES[2]}
        status["conditions"] = [{"status": n, "lastTransitionTime": at} for n, at in phases.items()]
    meta = {"name": "bert-5", "creationTimestamp": TIMES[0]}
    kind = "Workload" if kind == "Workload" else "Job"
    item = {"kind": kind, "metadata": meta, "spec": spec, "status": status}
    return {"items": [item]}


@pytest.mark.parametrize("kind", ["Workload", "volcano"])
@pytest.mark.parametrize("failed", [False, True])
def test_jobs_of_kubernetes(tmp_path: Path, kind: str, failed: bool) -> None:
    text = json.dumps(kube(kind))
    if failed:
        text = text.replace('"Completed"', '"Failed"')
        # As most GPUs are asked for.
        text = text.replace('"requests": {"nv', '"limits": {"nv')
    (job,) = read(tmp_path, text).jobs
    assert (job.model, job.gpus, job.took_s) == ("bert-5", 8, 3600)


def test_a_plain_job_of_kubernetes_is_named(tmp_path: Path) -> None:
    items = [{"kind": "Job", "metadata": {"name": "a"}, "spec": {"parallelism": 2}}]
    with pytest.raises(UsageError, match=r"items.0.: is a plain Job, which doesn't say where"):
        read(tmp_path, json.dumps({"items": items}))


def test_gpus_that_slurm_does_not_count_are_asked_for(tmp_path: Path) -> None:
    row = "1|a|0|1|9|COMPLETED|billing=8,cpu=8,mem=4G,node=2|n[1-2]"
    with pytest.raises(UsageError, match="AccountingStorageTRES has gres/gpu"):
        read(tmp_path, lines(row))


def test_jobs_of_one_name_have_their_ids(tmp_path: Path) -> None:
    rows = [f"{n}|a|{t}|{t}|{t + 9}|{s}|gres/gpu=8|n1" for n, t, s in JOBS_OF_A]
    assert [job.name for job in read(tmp_path, lines(*rows)).jobs] == ["a.7", "a.8", "a.8#2"]


JOBS_OF_A = [(7, 0, "COMPLETED"), (8, 10, "REQUEUED"), (8, 30, "COMPLETED")]


@pytest.mark.parametrize("owned", [False, True])
def test_workloads_of_kueue_are_named_by_their_owners(tmp_path: Path, owned: bool) -> None:
    items: list[dict[str, Any]] = []
    for number, digits in enumerate(("3f0a1", "77e2b", "0c4d9")):
        meta: dict[str, Any] = {"name": f"pytorchjob-bert-{number + 1}-{digits}"}
        if owned:
            meta["ownerReferences"] = [{"kind": "PyTorchJob", "name": f"bert-{number + 1}"}]
        items += kube("Workload")["items"]
        items[-1]["metadata"] |= meta
    jobs = read(tmp_path, json.dumps({"items": items})).jobs
    assert {(job.name, job.model) for job in jobs} == {(f"bert-{n}", "bert") for n in (1, 2, 3)}


V1BETA1 = {
    "levels": ["rack", "kubernetes.io/hostname"],
    "domains": [{"values": ["r1", "n1"], "count": 2}, {"values": ["r1", "n2"], "count": 1}],
}
V1BETA2 = {
    "levels": ["rack", "kubernetes.io/hostname"],
    "slices": [
        {
            "domainCount": 2,
            "valuesPerLevel": [
                {"universal": "r1"},
                {"individual": {"prefix": "n", "roots": ["1", "2"]}},
            ],
            "podCounts": {"individual": [2, 1]},
        }
    ],
}


@pytest.mark.parametrize(
    ("topology", "placement"),
    [
        (V1BETA1, {"n1": 8, "n2": 4}),
        (V1BETA2, {"n1": 8, "n2": 4}),
        (V1BETA1 | {"levels": ["rack"]}, {}),
        ({}, {}),
    ],
)
def test_kueues_admission_says_counts_and_nodes(
    tmp_path: Path, topology: dict[str, Any], placement: dict[str, int]
) -> None:
    """Three pods were admitted of the two that are asked for; all have devices of a class (DRA)."""
    assigned = {"name": "main", "count": 3, "resourceUsage": {"whole-gpus": "12", "cpu": "9"}}
    whole = kube("Workload")
    own = assigned | {"topologyAssignment": topology}
    whole["items"][0]["status"]["admission"] = {"podSetAssignments": [own]}
    (job,) = read(tmp_path, json.dumps(whole)).jobs
    assert (job.gpus, job.placement) == (12, placement)


def test_time_before_an_eviction_counts_as_held(tmp_path: Path) -> None:
    """Nothing says where it was: others may have been on the servers of the last admission."""
    whole = kube("Workload")
    status = whole["items"][0]["status"]
    status["schedulingStats"] = {"evictions": [{"count": 1}]}
    assert ["1 job was evicted" in note for note in read(tmp_path, json.dumps(whole)).notes] == [1]
    status["accumulatedPastExecutionTimeSeconds"] = 45
    log = read(tmp_path, json.dumps(whole))
    assert (log.jobs[0].took_s, log.other_hours, log.notes) == (3600, 8 * 45 / 3600, ())


def test_a_volcano_job_holds_gpus_in_all_its_running_phases(tmp_path: Path) -> None:
    whole = kube("volcano")
    again = [("Restarting", "10:11"), ("Running", "10:31"), ("Completed", "11:01")]
    whole["items"][0]["status"]["conditions"][2:] = [
        {"status": phase, "lastTransitionTime": f"2026-03-01T{at}:00Z"} for phase, at in again
    ]
    (job,) = read(tmp_path, json.dumps(whole)).jobs
    assert (job.took_s, job.end_s - job.start_s) == (2400, 3600)


@pytest.mark.parametrize("kind", ["Workload", "volcano"])
@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("status", None, "1 without a start or an end"),
        ("status.conditions", 5, "items.0.: can't be read .TypeError"),
        ("metadata", [], "items.0.: can't be read .AttributeError"),
        ("spec.*.0.template.spec.containers.0.resources", None, "1 without GPUs"),
        (
            "spec.*.0.template.spec.containers.0.resources.requests",
            {"nvidia.com/gpu": "2k"},
            "items.0.: can't be read .ValueError: .* '2k'",
        ),
    ],
)
def test_malformed_objects_are_refused(
    tmp_path: Path, kind: str, path: str, value: object, said: str
) -> None:
    whole = kube(kind)
    at: Any = whole["items"][0]
    *parts, last = path.replace("*", "podSets" if kind == "Workload" else "tasks").split(".")
    for part in parts:
        at = at[int(part) if part.isdigit() else part]
    at[int(last) if last.isdigit() else last] = value
    with pytest.raises(UsageError, match=said):
        read(tmp_path, json.dumps(whole))


TREE = """\
SwitchName=rack1 Nodes=n[1-2]
SwitchName=rack2 Nodes=n[3-4]
SwitchName=top Switches=rack[1-2]
"""
FOUR = dict.fromkeys(("n1", "n2", "n3", "n4"), 4)


def test_networks_of_slurm(tmp_path: Path) -> None:
    file = tmp_path / "topology.conf"
    file.write_text(f"# two racks\n{TREE}")
    cluster = read_topology(file, "100gbit", None, FOUR)
    whole = {"cluster": cluster, "jobs": [{"model": "bert", "gpus": 16, "iterations": 1}]}
    topology = parse_workload(json.dumps(whole), "w.yaml").topology
    assert (topology.total_gpus, topology.leaves) == (16, 2)
    assert sorted(topology.network.rates_bps)[-1] == 200e9
    # The log's names may lack the domain's.
    file.write_text(TREE.replace("n[1-2]", "n1.example.org,n2.example.org"))
    assert cluster == read_topology(file, "100gbit", None, FOUR)
    with pytest.raises(UsageError, match="no switch has n9"):
        read_topology(file, "100gbit", None, {"n9": 4})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a,c", "b has the switch c, which"),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2", "n2 is below a and b"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n1", "a and b are below"),
        ("# x\nSwitchName=a Nodes=n[1-99999999999]", "t.conf:2: .* more than 100000"),
        ("BlockName=a Nodes=n1", "t.conf:1: needs SwitchName with .* blocks as switches below"),
    ],
)
def test_malformed_networks_of_slurm_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.conf").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_topology(tmp_path / "t.conf", "1gbit", None, {"n1": 1})
