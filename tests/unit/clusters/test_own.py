# SPDX-License-Identifier: BSD-2-Clause
"""Logs of schedulers read, replayed and asked about."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.cluster_own import ask, import_, replay
from mltcp_tools.cli.main import main
from mltcp_tools.clusters.models import Model
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.own.ask import ask as answers_of
from mltcp_tools.clusters.own.ask import widened
from mltcp_tools.clusters.own.importing import (
    cluster_of,
    document,
    gpus_of_servers,
    models_of_table,
    one_switch,
)
from mltcp_tools.clusters.own.logs import models_of, read_log
from mltcp_tools.clusters.own.page import unexplained
from mltcp_tools.clusters.own.replay import calibrated, compare, error, simulated, trust
from mltcp_tools.clusters.own.slurm import hosts, read_conf
from mltcp_tools.clusters.rules import UNTOLD, Treatment, treatment
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.workload import ClusterJob, Workload, parse_workload
from mltcp_tools.lab.runs.run import load_run

SACCT = """\
JobID|JobName|Submit|Start|End|State|AllocTRES|NodeList
7|vgg16-1|2026-03-01T10:00:00|2026-03-01T10:01:00|2026-03-01T11:01:00|COMPLETED|cpu=64,gres/gpu=8|n[1-2]
7.0|python|2026-03-01T10:01:00|2026-03-01T10:01:00|2026-03-01T11:01:00|COMPLETED|gres/gpu=8|n[1-2]
8|bert|2026-03-01T10:00:30|2026-03-01T10:02:00|2026-03-01T10:32:00|COMPLETED|gres/gpu:a100=8|n3,n4
9|bert|2026-03-01T10:05:00|2026-03-01T10:06:00|2026-03-01T10:07:00|CANCELLED by 0|gres/gpu=8|n3
10|prep|2026-03-01T10:05:00|2026-03-01T10:06:00|2026-03-01T10:07:00|COMPLETED|cpu=8|n3
"""
ONE = "\n".join(SACCT.splitlines()[:2])
CONF = """\
# two racks
SwitchName=rack1 Nodes=n[1-2]
SwitchName=rack2 Nodes=n[3-4]
SwitchName=spine Switches=rack[1-2]
"""
BERT = {"bert": {"like": "bert"}}
CSV = "name,submitted,start,end,gpus,nodes,model,iterations\n"


def text_of(kind: str) -> str:
    """A list of one job of 2 pods with 4 GPUs each."""
    times = ["2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z", "2026-03-01T11:01:00Z"]
    container = {"resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "8"}}}
    template = {"spec": {"containers": [container]}}
    if kind == "Workload":
        spec = {"podSets": [{"count": 2, "template": template}]}
        conditions = [
            {"type": "Admitted", "status": "True", "lastTransitionTime": times[1]},
            {"type": "Finished", "status": "True", "lastTransitionTime": times[2]},
        ]
    else:
        spec = {"tasks": [{"replicas": 2, "template": template}]}
        conditions = [
            {"status": "Running", "lastTransitionTime": times[1]},
            {"status": "Completed", "lastTransitionTime": times[2]},
        ]
    meta = {"name": "bert-5", "creationTimestamp": times[0]}
    item = {"kind": kind, "metadata": meta, "spec": spec, "status": {"conditions": conditions}}
    return json.dumps({"items": [item]})


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
def test_lists_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        hosts(text)


@pytest.mark.parametrize(
    ("names", "models"),
    [
        (["resnet-18", "resnet-50", "resnet-101"], ["resnet-18", "resnet-50", "resnet-101"]),
        (["gpt-2", "gpt-3"], ["gpt-2", "gpt-3"]),
        (["vgg16-1", "vgg16-2", "vgg16-4"], ["vgg16"] * 3),
        (["bert_007", "bert_9184467", "bert"], ["bert"] * 3),
        (["a-11", "a-12", "a-13", "a-15"], ["a"] * 4),
        (["llama-3.2-1", "llama-3.2-2"], ["llama-3.2"] * 2),
        (["42", "-7"], ["42", "-7"]),
    ],
)
def test_only_numbers_that_count_jobs_are_cut(names: list[str], models: list[str]) -> None:
    assert list(models_of(names).values()) == models


def test_parts_of_gpus_and_bad_rows_are_counted(tmp_path: Path) -> None:
    lines = ["a,0,1,9,8,n1,m,1", "b,0,1,9,0.5,n1,m,1", "c,0,soon,9,8,n1,m,1", "d,0,1,9,8.0,n1,m,1"]
    lines += ["e, f,0,1,9,8,n1,m,1", "g,0,1,9,8,n1,m,1"]
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    log = read_log(tmp_path / "log")
    assert [job.name for job in log.jobs] == ["a", "d", "g"]
    (wrong,) = (reason for reason in log.left_out if "can't be read" in reason)
    assert re.search(r"first .*log:4: start: 'soon' is no time", wrong)
    assert log.left_out[wrong] == 2
    assert log.left_out["with a part of a GPU"] == 1


def test_a_log_of_mostly_bad_rows_is_refused(tmp_path: Path) -> None:
    lines = ["a,0,1,9,8,n1,m,1", "b,0,soon,9,8,n1,m,1"]
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    with pytest.raises(UsageError, match="log:3: start: 'soon' is no time"):
        read_log(tmp_path / "log")


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
        "time": {"submission": 1772359200, "start": 1772359260, "end": 1772362860},
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
    (tmp_path / "log").write_text(json.dumps({"jobs": [slurm_json(), running, old, cpus]}))
    log = read_log(tmp_path / "log")
    (job, other) = log.jobs
    assert (job.gpus, job.nodes, job.model) == (8, ("n1", "n2"), "vgg16")
    assert (job.start_s - job.submitted_s, job.end_s - job.start_s) == (60, 3600)
    assert other.id == "9"
    assert log.left_out == {"completed": 1, "without GPUs": 1}


@pytest.mark.parametrize(
    "entry", [5, None, {"time": 3}, {"tres": {"allocated": [{"type": "gres", "name": 5}]}}]
)
def test_entries_of_sacct_that_are_none_are_refused(tmp_path: Path, entry: object) -> None:
    (tmp_path / "log").write_text(json.dumps({"jobs": [entry]}))
    with pytest.raises(UsageError, match="log"):
        read_log(tmp_path / "log")


@pytest.mark.parametrize(("ids", "noted"), [((1, 2), True), ((1, 1), False)])
def test_requeues_without_earlier_runs_are_noted(
    tmp_path: Path, ids: tuple[int, int], noted: bool
) -> None:
    line = "%d|bert|%d|%d|%d|%s|gres/gpu=8|n1"
    first, second = ids
    lines = [line % (first, 0, 1, 9, "NODE_FAIL"), line % (second, 10, 11, 19, "COMPLETED")]
    (tmp_path / "log").write_text("\n".join([SACCT.splitlines()[0], *lines]) + "\n")
    notes = read_log(tmp_path / "log").notes
    assert [("sacct -D" in note) for note in notes] == [True] * noted


def test_jobs_of_sacct(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(SACCT)
    log = read_log(tmp_path / "log")
    assert [(job.name, job.gpus, job.nodes) for job in log.jobs] == [
        ("vgg16-1", 8, ("n1", "n2")),
        ("bert", 8, ("n3", "n4")),
        # That was cancelled, after it had its GPUs for a minute.
        ("bert.2", 8, ("n3",)),
    ]
    assert log.jobs[0].end_s - log.jobs[0].start_s == 3600
    assert log.left_out == {"without GPUs": 1}


def test_jobs_that_never_ran_or_still_do_are_left_out(tmp_path: Path) -> None:
    job = "%s|bert|2026-03-01T10:00:00|%s|%s|%s|gres/gpu=8|%s"
    at = "2026-03-01T1%d:00:00"
    lines = [
        job % (1, at % 1, at % 2, "COMPLETED", "n1"),
        job % (2, at % 1, "Unknown", "RUNNING", "n1"),
        job % (3, "Unknown", "Unknown", "PENDING", "None assigned"),
        job % (4, at % 1, at % 1, "CANCELLED by 7", "None assigned"),
        # Logs that were put together, and a job that was queued again.
        job % (1, at % 1, at % 2, "COMPLETED", "n1"),
        job % (1, at % 3, at % 4, "COMPLETED", "n1"),
    ]
    (tmp_path / "log").write_text("\n".join([SACCT.splitlines()[0], *lines]) + "\n")
    log = read_log(tmp_path / "log")
    assert [job.name for job in log.jobs] == ["bert", "bert.2"]
    assert log.left_out == {"running": 1, "pending": 1, "that took no time": 1, "listed twice": 1}


def test_local_times_are_read_on_a_day_of_clock_change(
    tmp_path: Path,
) -> None:
    lines = [
        "bert,2026-10-25T01:30:00,2026-10-25T02:50:00,2026-10-25T02:10:00,8,n1,,",
        "bert,2026-10-25T02:50:00,2026-10-25T02:10:00,2026-10-25T04:00:00,8,n1,,",
        "bert,2026-10-26T02:50:00,2026-10-26T03:00:00,2026-10-26T04:00:00,8,n1,,",
    ]
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    log = read_log(tmp_path / "log")
    assert len(log.jobs) == 1
    assert log.left_out == {
        "that ended before it began": 1,
        "that began before it was submitted": 1,
    }


@pytest.mark.parametrize("none", ["", "NaT", "nan", "None", "N/A"])
def test_what_a_table_does_not_know(tmp_path: Path, none: str) -> None:
    lines = [f"none,0,1,9,8,{none},{none},{none}", f"b,0,1,{none},8,n1,,", f"c,0,1,9,{none},n1,,"]
    (tmp_path / "log").write_text(CSV + "\n\n".join(lines) + "\n")
    log = read_log(tmp_path / "log")
    assert [(job.name, job.model, job.nodes) for job in log.jobs] == [("none", "none", ())]
    assert log.left_out == {"without a start or an end": 1, "without GPUs": 1}


def test_names_of_any_kind_come_through(tmp_path: Path) -> None:
    names = ["模型, 7", "yes: [no]", "null", "1e3", "- x", "a\x1b[31mb", "x\ny", "<b>&", "12"]
    table = io.StringIO()
    csv.writer(table).writerows([name, 0, 1, 9, 8, "n1;n2", "bert", ""] for name in names)
    (tmp_path / "log").write_text(CSV + table.getvalue())
    log = read_log(tmp_path / "log")
    found = {job.name for job in log.jobs}
    assert found == {*names} - {"a\x1b[31mb", "x\ny"} | {"a [31mb", "x y"}
    text = document(log, one_switch(log.jobs, "10gbit"), BERT)
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
        (ONE.replace("gpu=8|n[1-2]", "gpu=1K|n[1-2]"), "2: AllocTRES: '1K' is no number of GPUs"),
        (ONE.replace("gpu=8|n[1-2]", f"gpu={10**20}|n[1-2]"), "is no number of GPUs"),
        (CSV + "bert,0,1,9,99999999,,,\n", "2: GPUs: 99999999 of them are more than any job has"),
        ("[]", "is not a list of Kubernetes objects"),
        ("{" * 100_000, "is not a list of Kubernetes objects"),
    ],
)
def test_logs_that_are_none_are_refused_with_the_place(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_log(tmp_path / "log")


@pytest.mark.parametrize("kind", ["Workload", "Job"])
@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("status", None, "1 without a start or an end"),
        ("status.conditions", {}, "items.0.: status.conditions: must be a list, not {}"),
        ("metadata", [], "items.0.: metadata.name: there is .. where name should be"),
        ("metadata.name", 5, "metadata.name: must be text, not 5"),
        ("metadata.creationTimestamp", 5, "metadata.creationTimestamp: must be text, not 5"),
        ("spec", None, "1 without GPUs"),
        ("spec.*.0", "pod", "spec.[a-zS]+.0.: template.spec.containers: there is 'pod' where"),
        ("spec.*.0.template.spec.containers.0.resources", None, "1 without GPUs"),
        (
            "spec.*.0.template.spec.containers.0.resources.requests",
            {"nvidia.com/gpu": "2k"},
            "spec.[a-zS]+.0.: nvidia.com/gpu: must be a whole number, not '2k'",
        ),
    ],
)
def test_objects_that_are_not_what_they_should_be(
    tmp_path: Path, kind: str, path: str, value: object, said: str
) -> None:
    whole = json.loads(text_of(kind))
    at = whole["items"][0]
    *parts, last = path.replace("*", "podSets" if kind == "Workload" else "tasks").split(".")
    for part in parts:
        at = at[int(part) if part.isdigit() else part]
    at[int(last) if last.isdigit() else last] = value
    (tmp_path / "log").write_text(json.dumps(whole))
    with pytest.raises(UsageError, match=said):
        read_log(tmp_path / "log")


def test_jobs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """As in most logs of Slurm; each is predicted by itself."""
    line = "%d|bert|%d|%d|%d|COMPLETED|gres/gpu=8|n[1-2]"
    lines = [line % (n, at, at, at + 100 + n) for n, at in enumerate((0, 200, 400))]
    lines.append((line % (7, 600, 600, 700)).replace("bert", "bert.2"))
    (tmp_path / "log").write_text("\n".join([SACCT.splitlines()[0], *lines]) + "\n")
    log = read_log(tmp_path / "log")
    names = ["bert", "bert.3", "bert.4", "bert.2"]
    assert [job.name for job in log.jobs] == names
    assert {job.model for job in log.jobs} == {"bert", "bert.2"}
    models = BERT | {"bert.2": {"like": "bert"}}
    text = document(log, one_switch(log.jobs, "10gbit"), models)
    found = {each.job.name: each for each in compare(parse_workload(text, "w"), ())}
    assert [found[name].observed_s for name in names] == [100, 101, 102, 100]
    assert len({found[name].predicted_s for name in names[:3]}) == 3
    with pytest.raises(UsageError, match=r"jobs\[2\].name: another job is called 'bert' already"):
        parse_workload(text.replace("bert.3", "bert"), "w")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_logs_as_spreadsheets_and_shells_write_them(
    tmp_path: Path, encoding: str, line_end: str
) -> None:
    text = "Name;Submitted;Start;End;GPUs;Nodes;Iterations\nbert;0;1;9;8.0;n[1-2];500.0\n"
    (tmp_path / "log").write_bytes(text.replace("\n", line_end).encode(encoding))
    (job,) = read_log(tmp_path / "log").jobs
    assert (job.gpus, job.nodes, job.iterations) == (8, ("n1", "n2"), 500)


def test_a_log_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes((CSV + "bért,0,1,9,8,,m,1\n").encode("latin1"))
    with pytest.raises(UsageError, match="log:2: is no text in UTF-8"):
        read_log(tmp_path / "log")
    (tmp_path / "log").write_text("\n")
    with pytest.raises(UsageError, match="log is empty; it needs"):
        read_log(tmp_path / "log")


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=8,gres/gpu=8,gres/gpu:a100=8", 8),
        ("gres/gpu:a100=4,gres/gpu:v100=2", 6),
        ("gres/gpu:a100=4,gres/gpu=4,mem=1G", 4),
    ],
)
def test_gpus_of_types_are_counted_once(tmp_path: Path, tres: str, gpus: int) -> None:
    name = 'say "hi|ho"'
    line = f"1|{name}|0|1|9|COMPLETED|{tres}|n1"
    (tmp_path / "log").write_text(f"{SACCT.splitlines()[0]}\n{line}\n")
    (job,) = read_log(tmp_path / "log").jobs
    assert (job.gpus, job.name) == (gpus, name)


def test_servers_that_jobs_share_have_gpus_for_all_of_them(tmp_path: Path) -> None:
    lines = ["a,0,0,10,4,n1,m,1", "b,0,2,10,4,n1,m,1", "c,0,10,20,4,n1;n2,m,1"]
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    assert gpus_of_servers(read_log(tmp_path / "log").jobs) == {"n1": 8, "n2": 2}


@pytest.mark.parametrize("kind", ["Workload", "Job"])
def test_gpus_are_what_limits_say_too(tmp_path: Path, kind: str) -> None:
    asked = '"requests": {"nvidia.com/gpu": "4", "cpu": "8"}'
    usual = '"requests": {"cpu": "8"}, "limits": {"nvidia.com/gpu": "4"}'
    text = text_of(kind)
    assert asked in text
    (tmp_path / "log").write_text(text.replace(asked, usual))
    (job,) = read_log(tmp_path / "log").jobs
    assert job.gpus == 8


@pytest.mark.parametrize(
    ("kind", "was", "failed"),
    [
        ("Workload", '"Finished"', '"Finished", "reason": "Failed"'),
        ("Job", '"Completed"', '"Failed"'),
    ],
)
def test_jobs_that_failed_had_their_gpus(tmp_path: Path, kind: str, was: str, failed: str) -> None:
    assert was in text_of(kind)
    (tmp_path / "log").write_text(text_of(kind).replace(was, failed))
    (job,) = read_log(tmp_path / "log").jobs
    assert (job.gpus, job.end_s - job.start_s) == (8, 3600)


@pytest.mark.parametrize("kind", ["Workload", "Job"])
def test_jobs_of_kubernetes(tmp_path: Path, kind: str) -> None:
    (tmp_path / "log").write_text(text_of(kind))
    (job,) = read_log(tmp_path / "log").jobs
    assert (job.model, job.gpus, job.end_s - job.start_s) == ("bert-5", 8, 3600)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a,0,1,soon,8,,m,1", "2: end: 'soon' is no time"),
        ("a,5,1,9,8,,m,1", "no job that ran .* .1 that began before it was submitted"),
        ("a,0,1,9,-8,,m,1", "2: gpus: must be a whole number"),
        ("a,0,1,9,1,n1;n2,m,1", "2: nodes: 2 of them, and 1 GPU\\."),
        ("a,0,1,9,8,,m,0", "2: iterations: must be 1"),
        ("a,0,1,1,8,,m,3", "no job that ran on GPUs and ended .1 that took no time"),
        ("a,0,inf,1,8,,m,3", "2: start: 'inf' is no time"),
        (
            "a,2026-03-01T10:00:00Z,2026-03-01T10:01:00,2026-03-01T11:00:00,8,,m,3",
            "2: submitted: is with a zone, and the log's first time without a zone",
        ),
        ("a,0,1,9,8,n[1-,m,1", "2: nodes: .* a bracket is open"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "log").write_text(CSV + line + "\n")
    with pytest.raises(UsageError, match=said):
        read_log(tmp_path / "log")


def test_switches_of_slurm(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(CONF)
    gpus = dict.fromkeys(("n1", "n2", "n3", "n4"), 4)
    cluster = read_conf(tmp_path / "topology.conf", "100gbit", None, gpus)
    text = json.dumps(
        {"cluster": cluster, "jobs": [{"model": "bert", "gpus": 16, "iterations": 1}]}
    )
    topology = parse_workload(text, "w.yaml").topology
    assert (topology.total_gpus, topology.leaves, topology.oversubscription) == (16, 2, 1.0)
    (tmp_path / "topology.conf").write_text('SwitchName="a" \\\n Nodes="n[1-4]" LinkSpeed=7\n')
    assert len(read_conf(tmp_path / "topology.conf", "1gbit", None, gpus)["links"]) == 4  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no switch has n9"):
        read_conf(tmp_path / "topology.conf", "100gbit", None, {"n9": 4})


def test_servers_of_a_log_differ_in_size_and_speed(tmp_path: Path) -> None:
    lines = ["a,0,0,100,8,n1,m,100", "b,0,0,200,2,n2,m,100", "c,0,200,300,4,n1;n2,m,"]
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    (tmp_path / "m.yaml").write_text("models: {m: {compute: 1s, size: 0B}}\n")
    (tmp_path / "topology.conf").write_text(CONF)
    # topology.conf knows no speeds.
    links = [{"name": n, "ends": [n, "s"], "rate": "1gbit"} for n in ("n1", "n2")]
    servers = [{"name": "n1", "gpus": 8}, {"name": "n2", "gpus": 2, "speed": 0.5}]
    cluster = {"cluster": {"links": links, "servers": servers}}
    (tmp_path / "c.yaml").write_text(json.dumps(cluster))

    def imported(kind: str, file: str) -> Workload:
        options = [f"--{kind}", str(tmp_path / file), "--models", str(tmp_path / "m.yaml")]
        options += ["--rate", "1gbit"] if kind == "topology" else []
        data = tmp_path / "data.yaml"
        ran = CliRunner().invoke(import_, [str(tmp_path / "log"), "-o", str(data), *options])
        assert ran.exception is None, ran.exception
        return parse_workload(data.read_text(), "w")

    equal, slow = imported("topology", "topology.conf"), imported("cluster", "c.yaml")
    for each in (equal, slow):
        assert each.topology.gpus_of.tolist() == [8, 2]
    took = [{c.job.name: c.predicted_s for c in compare(each, ())} for each in (equal, slow)]
    assert took[0]["b"] == pytest.approx(took[0]["a"], rel=0.05)
    assert took[1]["b"] == pytest.approx(2 * took[1]["a"], rel=0.05)


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a,c", "b has the switch c, which has"),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2", "n2 is below a and b"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n1", "a and b are below each"),
        ("BlockName=a Nodes=n1", "1: needs SwitchName"),
        ("# x\nSwitchName=a Nodes=n[1-99999999999]", "topology.conf:2: .* more than 100000 hosts"),
    ],
)
def test_switches_that_are_no_tree_are_refused(tmp_path: Path, conf: str, said: str) -> None:
    (tmp_path / "topology.conf").write_text(conf)
    with pytest.raises(UsageError, match=said):
        read_conf(tmp_path / "topology.conf", "1gbit", None, {"n1": 1})


def test_what_describes_a_network_is_not_said_in_two_ways(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        (tmp_path / "log").write_text(SACCT)
        data = ["-o", str(tmp_path / "data.yaml")]
        return str(CliRunner().invoke(import_, [str(tmp_path / "log"), *data, *words]).exception)

    assert "describes the whole network" in said("--cluster", "c.yaml", "--queue", "1MB")
    assert "--uplink is of links between switches" in said("--uplink", "1gbit")
    assert (
        said("--queue", "60")
        == "--queue: '60' is not a size, as it has no unit; write it like 2.5MB, 30kB or 64KiB."
    )
    assert said("--rate", "fast").startswith("--rate: 'fast' is not a rate")
    assert said().startswith("nothing says how fast servers' links are: give --rate")
    table = ["--models", str(tmp_path / "m.yaml"), "--rate", "1gbit"]
    (tmp_path / "m.yaml").write_text("models: {bert: {size: -1MB}, vgg16: {like: vgg16}}\n")
    assert re.search(r"log makes:\d+: models.bert.size: '-1MB'", said(*table))
    (tmp_path / "m.yaml").write_text("models: {bert: {like: bert}, vgg16: {like: vgg16}}\n")
    assert said("--queue", "60kB", *table) == "None"
    topology = parse_workload((tmp_path / "data.yaml").read_text(), "w").topology
    assert topology.queue == 60_000
    assert topology.network.rates_bps[0] == 1e9


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("{servers: 2, gpus: 4}", "c.yaml has no server n1, where vgg16-1 ran; its servers are s0"),
        (
            "{links: [{name: a, ends: [n1, s], rate: 1gbit},"
            " {name: b, ends: [n2, s], rate: 1gbit}],"
            " servers: [{name: n1, gpus: 4}, {name: n2, gpus: 2}]}",
            "c.yaml gives n2 2 GPUs, and vgg16-1 had 4 there",
        ),
    ],
)
def test_jobs_ran_on_what_the_cluster_has(tmp_path: Path, cluster: str, said: str) -> None:
    (tmp_path / "log").write_text(SACCT)
    (tmp_path / "c.yaml").write_text(f"cluster: {cluster}\n")
    options = ["--cluster", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "data.yaml")]
    ran = CliRunner().invoke(import_, [str(tmp_path / "log"), *options])
    assert said in str(ran.exception)
    assert not (tmp_path / "data.yaml").exists()


@pytest.mark.parametrize("command", [ask, replay])
@pytest.mark.parametrize("text", [SACCT, text_of("Job")])
def test_a_log_is_imported_first(tmp_path: Path, command: click.Command, text: str) -> None:
    (tmp_path / "log").write_text(text)
    said = CliRunner().invoke(command, [str(tmp_path / "log")])
    assert "is a log; `mltcp cluster import" in str(said.exception)
    (tmp_path / "log").write_text("cluster: {servers: 1}\n")
    said = CliRunner().invoke(command, [str(tmp_path / "log")])
    assert "needs either jobs or generate" in str(said.exception)
    (tmp_path / "log").write_text("a b c d e f\n" * 9000)
    said = CliRunner().invoke(command, [str(tmp_path / "log")])
    assert re.search(r"log:1: must be a mapping, not 'a b .*…'\.$", str(said.exception))
    assert len(str(said.exception)) < 300


@pytest.mark.parametrize("text", ["{}", "seed: 1", "cluster: 4", "cluster: {servers: 0}"])
def test_files_of_clusters_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"c\.yaml"):
        cluster_of(tmp_path / "c.yaml")


@pytest.mark.parametrize("text", ["models: [1]", "models: {a: 1}", "{}", "modells: {}"])
def test_tables_of_models_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"m\.yaml"):
        models_of_table(tmp_path / "m.yaml")


def test_models_that_nobody_described_are_asked_for_at_once(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(SACCT.replace("bert", "mine"))
    words = ["--rate", "1gbit", "-o", str(tmp_path / "data.yaml")]
    asked = CliRunner().invoke(import_, [str(tmp_path / "log"), *words])
    table = "models:\n  vgg16: {like: vgg16}\n  mine: {size: BYTES, compute: SECONDS}"
    assert table in str(asked.exception)


def test_models_of_many_names(tmp_path: Path) -> None:
    """As logs have them that people fill by hand: few matter, and one entry stands for the rest."""
    lines = [f"{chr(97 + n // 26)}{chr(97 + n % 26)},0,0,{9 + n},2,n1;n2,," for n in range(30)]
    lines += ["007,0,0,99,2,n1;n2,,", "alone,0,0,999,4,n1,,"]
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")

    def ran(table: str) -> tuple[str, dict[str, Model]]:
        (tmp_path / "m.yaml").write_text(table)
        data, words = tmp_path / "data.yaml", ["--models", str(tmp_path / "m.yaml")]
        words += ["--rate", "1gbit", "-o", str(data)]
        done = CliRunner().invoke(import_, [str(tmp_path / "log"), *words])
        made = parse_workload(data.read_text(), "w", share=0.5) if not done.exception else None
        jobs = made.jobs if made else ()
        return str(done.exception), {job.model.name: job.model for job in jobs}

    said, _ = ran("models: {none: {size: 1MB}}")
    listed = yaml.safe_load(said[said.index("models:") :])["models"]
    # Those that had most GPU hours; a job that stays on one server needs no size.
    assert list(listed)[:2] == ["007", "bd"]
    assert len(listed) == 20
    assert "without 11 that had fewer GPU hours" in said
    _, found = ran('models: {007: {size: 1MB}, "*": {like: aa, flows: 2}, aa: {size: 2MB}}')
    assert (found["007"].size, found["bd"].size, found["bd"].flows) == (10**6, 2 * 10**6, 2)
    assert found["alone"].size == 2 * 10**6
    _, found = ran(
        "models: "
        + json.dumps(
            {
                name: {"size": "3MB"}
                for name in ["007", *(line.split(",")[0] for line in lines[:30])]
            }
        )
    )
    assert found["alone"].size == 0


def observed(tmp_path: Path) -> Path:
    """A workload that was run by this simulator with models that compute for longer than said."""
    topology = regular(servers=4, gpus=4, leaf=2, oversubscription=4.0, spines=1, rate_bps=25e9)
    text = "cluster: {servers: 4, gpus: 4, leaf: 2, oversubscription: 4, spines: 1, rate: 25gbit}\n"
    text += "models: {mine: {compute: %s, size: 300MB}}\njobs:\n"
    jobs = [
        f"{{name: j{n}, model: mine, gpus: 4, iterations: {500 + 20 * n}, arrival: {n * 40}s,"
        f" placement: {{s{n % 2}: 2, s{2 + n % 2}: 2}}%s}}"
        for n in range(12)
    ]
    whole = text % "300ms" + "".join(f"  - {each % ''}\n" for each in jobs)
    ran = {job.name: job.running_s for job in simulated(parse_workload(whole, "w")).jobs}
    assert topology.total_gpus == 16
    lines = [each % f", took: {ran[f'j{n}']:.3f}s, start: {n * 40}s" for n, each in enumerate(jobs)]
    path = tmp_path / "data.yaml"
    path.write_text(text.replace("compute: %s, ", "") + "".join(f"  - {line}\n" for line in lines))
    return path


def test_an_emulated_cluster_that_was_recorded_is_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From Slurm's log and recordings alone: jobs as the packet simulator runs them."""
    run_folder, log, data = tmp_path / "run", tmp_path / "log", tmp_path / "data.yaml"
    options = ["--variants", "reno", "--iterations", "100", "--repetitions", "1", "--trace", "0"]
    assert main(["simulate", "rings", *options, "-o", str(run_folder)]) == 0
    run = load_run(run_folder)
    own = run.iterations[run.iterations["variant"] == "reno"]
    lines = [SACCT.splitlines()[0]]
    for number, (job, rows) in enumerate(own.groupby("job")):
        hosts = ",".join(run.experiment.jobs[str(job)].hosts)
        start_s, end_s = rows["start_s"].min(), rows["end_s"].max()
        times = "|".join(str(each) for each in (start_s, start_s, end_s))
        lines.append(f"{number}|{job}|{times}|COMPLETED|gres/gpu=4|{hosts}")
    # Both are of one model: one is fitted to, the other predicted.
    log.write_text("\n".join(lines).replace("|a|", "|ring-1|").replace("|b|", "|ring-2|") + "\n")
    table = own["end_s"] - own["start_s"]
    counted = {"ring-1": table[own["job"] == "a"], "ring-2": table[own["job"] == "b"]}
    conf = (
        "".join(f"SwitchName=leaf{rack} Nodes=r{rack}h[1-4]\n" for rack in (1, 2))
        + "SwitchName=spine Switches=leaf[1-2]\n"
    )
    (tmp_path / "topology.conf").write_text(conf)
    (tmp_path / "models.yaml").write_text("models: {ring: {size: 1MB}}\n")
    arguments = ["--topology", str(tmp_path / "topology.conf"), "--rate", "200mbit"]
    # Two uplinks of 100 Mbit/s, which four connections of each pair share.
    arguments += ["--uplink", "200mbit", "--models", str(tmp_path / "models.yaml")]
    assert main(["cluster", "import", str(log), "-o", str(data), *arguments]) == 0
    described = yaml.safe_load(data.read_text())
    for job in described["jobs"]:
        job["iterations"] = len(counted[job["name"]])
    data.write_text(yaml.safe_dump(described))
    capsys.readouterr()
    assert main(["cluster", "replay", str(data), "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["jobs"] == 1
    assert model["median"] == pytest.approx(1, abs=0.1)


def test_models_and_iterations_come_from_recordings(tmp_path: Path) -> None:
    options = ["--variants", "reno", "--iterations", "20", "--repetitions", "1", "--trace", "0"]
    assert main(["simulate", "two-jobs", *options, "-o", str(tmp_path / "run")]) == 0
    run = load_run(tmp_path / "run")
    name, job = next(iter(run.experiment.jobs.items()))
    own = run.iterations[(run.iterations["variant"] == "reno") & (run.iterations["job"] == name)]
    mean_s = float((own["end_s"] - own["start_s"]).mean())
    lines = [SACCT.splitlines()[0], f"1|{name}|0|0|{500 * mean_s}|COMPLETED|gres/gpu=2|n[1-2]"]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    data = tmp_path / "data.yaml"
    words = [str(tmp_path / "log"), "-o", str(data), "--recorded", str(tmp_path / "run")]
    words += ["--rate", "1gbit"]
    ran = CliRunner().invoke(import_, [*words, "--variant", "reno"])
    assert ran.exception is None, ran.output
    (found,) = parse_workload(data.read_text(), "w").jobs
    # What one of two ranks sends is the gradient once.
    assert found.model.size == pytest.approx(job.bytes, rel=0.05)
    assert found.iterations == pytest.approx(500, abs=1)
    assert not found.guessed
    refused = CliRunner().invoke(import_, [*words, "--variant", "cubic"])
    assert "has no iterations of a variant cubic" in str(refused.exception)


def test_what_was_observed_is_predicted(tmp_path: Path) -> None:
    workload, held_out = calibrated(parse_workload(observed(tmp_path).read_text(), "w"))
    assert len(held_out) == 6
    compared = compare(workload, held_out)
    (found,) = trust(compared)
    assert found.jobs == 6
    assert found.median == pytest.approx(1, abs=0.05)
    assert (error(compared) or 1) < 0.1


def test_jobs_drift_apart_and_together_in_a_replay_as_they_did() -> None:
    """The time that three jobs lose to each other isn't taken for their model's computing time."""
    head = (
        "cluster:\n  links:\n"
        + "".join(f"    - {{name: h{n}, ends: [h{n}, r{n % 2}], rate: 20mbit}}\n" for n in range(8))
        + "".join(f"    - {{name: r{n}, ends: [r{n}, top], rate: 20mbit}}\n" for n in range(2))
        + "  servers: ["
        + ", ".join(f"{{name: h{n}, gpus: 1}}" for n in range(8))
        + "]\nmodels: {ring: {%ssize: 900kB}}\njobs:\n"
    )

    def text(took_s: dict[str, float] | None, jitter: str) -> str:
        lines = []
        for n, (start_s, first) in enumerate(((0, 0), (1, 2), (2, 4), (2000, 0), (4000, 2))):
            took = "" if took_s is None else f", took: {took_s[f'ring-{n}']}s"
            lines.append(
                f"  - {{name: ring-{n}, model: ring, gpus: 2, iterations: 300, start: {start_s}s,"
                f" arrival: {start_s}s,"
                f" placement: {{h{first}: 1, h{first + 1}: 1}}{jitter}{took}}}\n"
            )
        return head % ("compute: 1.6s, " if took_s is None else "") + "".join(lines)

    seen = simulated(parse_workload(text(None, ", jitter: 5%"), "w")).jobs
    took_s = {job.name: job.running_s for job in seen}
    workload, held_out = calibrated(parse_workload(text(took_s, ""), "w"))
    assert held_out == {"ring-3", "ring-4"}
    for each in compare(workload, held_out):
        assert each.ratio == pytest.approx(1, abs=0.03), each.job.name


def test_answers_say_what_they_can_tell(tmp_path: Path) -> None:
    data, page = observed(tmp_path), tmp_path / "page.html"
    said = CliRunner().invoke(ask, [str(data), "--draws", "2", "-o", str(page), "--json"])
    assert said.exception is None, said.output
    answers = {each["question"]: each for each in json.loads(said.stdout)["answers"]}
    assert len(answers) == 3
    # All jobs cross the uplinks; they wait less where these are wider, or jobs stay in a rack.
    assert answers["More uplinks?"]["verdict"] == "saves"
    assert answers["Place jobs better?"]["verdict"] == "saves"
    for each in answers.values():
        assert each["told"] == (abs(each["saved"]) > max(each["half"], each["untold"]))
    assert "More uplinks?" in page.read_text()
    assert f"of its rules against packets, {UNTOLD:.0%}," in page.read_text()


def test_what_nothing_was_held_against_says_so(tmp_path: Path) -> None:
    data = observed(tmp_path)
    bare = re.sub(r", iterations: [0-9]+", "", data.read_text())
    data.write_text(bare.replace("mine: {", "mine: {compute: 300ms, "))
    said = CliRunner().invoke(ask, [str(data), "--draws", "2", "--json"])
    answers = {each["question"]: each for each in json.loads(said.stdout)["answers"]}
    assert answers["More uplinks?"]["verdict"] == "saves, if the model is right"


def test_sums_over_mltcp_are_held_against_mltcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def noted(workload, name, how, seed):  # type: ignore[no-untyped-def]
        ran.append(how.name)
        return simulated(workload, name, how, seed)

    monkeypatch.setattr("mltcp_tools.clusters.own.ask.simulated", noted)
    answers_of(parse_workload(observed(tmp_path).read_text(), "w"), "mltcp", None, draws=2)
    assert list(dict.fromkeys(ran)) == ["mltcp", "mltcp+aggregation"]


def test_jobs_waiting_in_a_replay_for_their_hosts_are_counted(tmp_path: Path) -> None:
    text = "cluster: {servers: 1, gpus: 4}\njobs:\n" + "".join(
        f"  - {{name: j{n}, model: bert, gpus: 4, start: 0s, took: 100s, placement: {{s0: 4}}}}\n"
        for n in range(2)
    )
    said = unexplained(compare(parse_workload(text, "w"), ()))
    assert said[1].startswith("1 job waited in the replay until GPUs were free")


def test_predictions_need_observations(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("jobs: [{model: bert, gpus: 16, iterations: 10}]\n")
    said = CliRunner().invoke(replay, [str(path)])
    assert "no job that was observed" in str(said.exception)


def test_uplinks_alone_are_widened() -> None:
    topology = regular(servers=4, leaf=2, spines=1, rate_bps=10e9)
    wide = widened(topology, 2.0)
    rates = dict(zip(topology.names, topology.rates_bps, strict=True))
    for name, rate in zip(wide.names, wide.rates_bps, strict=True):
        assert rate == rates[name] * (2 if "leaf" in name else 1)


def test_a_job_whose_place_is_taken_waits_for_it() -> None:
    text = "cluster: {servers: 2, gpus: 4}\njobs:\n" + "".join(
        f"  - {{name: j{n}, model: bert, gpus: 4, iterations: 10, placement: {{s1: 4}}}}\n"
        for n in range(2)
    )
    first, second = simulated(parse_workload(text, "w"), how=treatment("fair")).jobs
    assert second.start_s == pytest.approx(first.end_s)


def test_a_log_of_many_iterations_is_replayed_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("a", 0.1, 0)
    jobs = tuple(
        ClusterJob(
            f"job-{n}", model, 1, 3_000_000, start_s=0.0, took_s=310_000.0, placement=((0, 1),)
        )
        for n in range(2)
    )
    ran: list[int] = []

    def noted(workload: Workload, how: Treatment | None = None) -> Outcome:
        ran.append(sum(job.iterations for job in workload.jobs))
        return simulated(workload, how=how)

    monkeypatch.setattr("mltcp_tools.clusters.own.replay.simulated", noted)
    found = compare(Workload(regular(servers=1, gpus=4, leaf=1, spines=1), jobs), ())
    assert ran == [1_000_000]
    assert [each.predicted_s for each in found] == pytest.approx([300_000] * 2, rel=0.01)
    assert [each.observed_s for each in found] == [310_000.0] * 2


LEAVES = """\
SwitchName=rack1 Nodes=n[1-2]
SwitchName=rack2 Nodes=n[3-4]
SwitchName=spine Switches=rack[1-2]
"""


def imported(tmp_path: Path, lines: list[str], model: str, *words: str) -> str:
    """The file that the real `cluster import` makes of a CSV's lines."""
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    (tmp_path / "topology.conf").write_text(LEAVES)
    (tmp_path / "m.yaml").write_text(f"models: {{mine: {{{model}}}}}\n")
    table = ["--models", str(tmp_path / "m.yaml"), "--rate", "10gbit"]
    data = str(tmp_path / "data.yaml")
    assert main(["cluster", "import", str(tmp_path / "log"), "-o", data, *table, *words]) == 0
    return data


def asked(capsys: pytest.CaptureFixture[str], data: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["cluster", "ask", data, "--draws", "2", "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["answers"])


CROSSING = [f"a{n},0,{n},{3000 + n},2,n{1 + n % 2};n{3 + n % 2},mine," for n in range(4)]


def test_no_computing_time_is_invented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one there are answers for shares of communication, each below its bound."""
    conf = ["--topology", str(tmp_path / "topology.conf"), "--uplink", "10gbit"]
    data = imported(tmp_path, CROSSING, "size: 200MB", *conf)
    assert "Nothing says how long an iteration of mine computes" in capsys.readouterr().err
    assert "compute" not in Path(data).read_text()
    answers = [each for each in asked(capsys, data) if each["question"] == "More uplinks?"]
    assert [each["share"] for each in answers] == [0.1, 0.25, 0.5]
    saved = [float(str(each["saved"])) for each in answers]
    assert saved == sorted(saved)
    assert saved[-1] > 2 * saved[0]
    for each, found in zip(answers, saved, strict=True):
        assert found < float(str(each["most"]))
    assert main(["cluster", "replay", data]) == 2
    assert "nothing says how long an iteration of mine computes" in capsys.readouterr().err
    # What the admin says is taken: a second of computing leaves nothing to be saved.
    given = asked(capsys, imported(tmp_path, CROSSING, "size: 20MB, compute: 1s", *conf))
    assert [each["share"] for each in given] == [None] * 3
    assert all(abs(float(str(each["saved"]))) < 0.02 for each in given)


@pytest.mark.parametrize(
    ("nodes", "uplink", "said"),
    [
        ("n1", "10gbit", "no effect: no job sends between servers"),
        ("n1;n2", "10gbit", "no effect: no job sends between switches"),
        ("n1;n3", None, "not known: nothing says how fast uplinks are"),
        ("n1;n3", "", "not known: nothing says which switches there are"),
        ("n1;n3", "10gbit", "can't tell: below"),
    ],
)
def test_zero_and_unknown_are_different_answers(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    nodes: str,
    uplink: str | None,
    said: str,
) -> None:
    words = [] if uplink == "" else ["--topology", str(tmp_path / "topology.conf")]
    words += ["--uplink", uplink] if uplink else []
    line = f"a,0,0,3000,2,{nodes},mine,"
    # The others make the servers known.
    data = imported(tmp_path, [line, "b,0,0,9,2,n2,mine,"], "size: 20MB, compute: 1s", *words)
    noted = capsys.readouterr().err
    assert ("(--uplink)" in noted) == (uplink is None)
    assert ("(--topology)" in noted) == (uplink == "")
    (answer,) = (each for each in asked(capsys, data) if each["question"] == "More uplinks?")
    assert str(answer["verdict"]).startswith(said)
    assert (answer["saved"] is None) == said.startswith("not known")


SATURATED = """\
cluster: {servers: 8, gpus: 1, leaf: 4, oversubscription: 4, spines: 1, rate: 10gbit}
models: {mine: {%ssize: 40MB}}
jobs:
"""


def saturated(compute: str, iteration_s: float) -> Workload:
    """Four jobs whose uplink is full whatever they compute."""
    lines = [
        f"  - {{name: j{n}, model: mine, gpus: 2, iterations: 500, start: {n}s, arrival: {n}s,"
        f" took: {500 * iteration_s}s, placement: {{s{n}: 1, s{4 + n}: 1}}}}\n"
        for n in range(4)
    ]
    return parse_workload(SATURATED % compute + "".join(lines), "w")


@pytest.mark.parametrize("iteration_s", [0.387, 0.36, 0.35])
def test_a_given_computing_time_is_kept(iteration_s: float) -> None:
    workload, held_out = calibrated(saturated("compute: 200ms, ", iteration_s))
    assert {job.model.compute_s for job in workload.jobs} == {0.2}
    # Nothing was fitted to any of them.
    assert held_out == {"j0", "j1", "j2", "j3"}


def test_an_unidentified_time_widens_the_interval() -> None:
    """On a full link iterations say little of computing: the answer covers the true time's."""
    seen = {job.running_s / 500 for job in simulated(saturated("compute: 40ms, ", 1.0)).jobs}
    took_s = sum(seen) / len(seen)
    true = answers_of(saturated("compute: 40ms, ", took_s), "reno", None, draws=2)[1]
    workload, _ = calibrated(saturated("", took_s))
    found = answers_of(workload, "reno", None, draws=2)[1]
    assert true.saved is not None
    assert found.saved is not None
    assert abs(found.saved - true.saved) < found.half
    assert found.half > true.half
