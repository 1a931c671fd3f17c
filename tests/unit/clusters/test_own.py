# SPDX-License-Identifier: BSD-2-Clause
"""Logs of schedulers read, replayed and asked about."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.cluster import command as cluster
from mltcp_tools.cli.cluster_own import ask, import_
from mltcp_tools.cli.main import main
from mltcp_tools.clusters import traces
from mltcp_tools.clusters.models import Model
from mltcp_tools.clusters.own.ask import ask as answers_of
from mltcp_tools.clusters.own.conflicts import Conflict, conflicts
from mltcp_tools.clusters.own.counters import measured, read_counters
from mltcp_tools.clusters.own.facts import facts, sentences
from mltcp_tools.clusters.own.findings import conflict_rows, conflict_sentence
from mltcp_tools.clusters.own.importing import (
    cluster_of,
    models_of_table,
    topology_of,
)
from mltcp_tools.clusters.own.logs import read_log
from mltcp_tools.clusters.own.replay import (
    by_start,
    calibrated,
    compare,
    error,
    overrun,
    simulated,
    trust,
)
from mltcp_tools.clusters.reading import parse_workload
from mltcp_tools.clusters.rules import UNTOLD
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.traces import read_draws
from mltcp_tools.clusters.workload import Workload, placed_s
from mltcp_tools.lab.runs.run import load_run

SACCT = """\
JobID|JobName|Submit|Start|End|State|AllocTRES|NodeList
7|vgg16-1|2026-03-01T10:00:00|2026-03-01T10:01:00|2026-03-01T11:01:00|COMPLETED|gres/gpu=8|n[1-2]
8|bert|2026-03-01T10:00:30|2026-03-01T10:02:00|2026-03-01T10:32:00|COMPLETED|gres/gpu=8|n3,n4
"""
CONF = """\
# two racks
SwitchName=rack1 Nodes=n[1-2]
SwitchName=rack2 Nodes=n[3-4]
SwitchName=spine Switches=rack[1-2]
"""


@pytest.fixture(autouse=True)
def _few_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltcp_tools.clusters.own.conflicts._PACKET_RUNS", 2)
    monkeypatch.setattr("mltcp_tools.clusters.own.conflicts._ITERATIONS", 14)


CSV = "name,submitted,start,end,gpus,nodes,model,iterations\n"


def test_what_describes_a_network_is_not_said_in_two_ways(tmp_path: Path) -> None:
    def said(*words: str) -> str:
        (tmp_path / "log").write_text(SACCT)
        data = ["-o", str(tmp_path / "data.yaml")]
        return str(CliRunner().invoke(import_, [str(tmp_path / "log"), *data, *words]).exception)

    (tmp_path / "c.yaml").write_text("cluster: {servers: 4}\n")
    both = said("--network", str(tmp_path / "c.yaml"), "--rate", "1gbit")
    assert "describes all links; leave out --rate and --uplink" in both
    assert "--uplink is the rate of links between switches" in said("--uplink", "1gbit")
    (tmp_path / "topology.yaml").write_text("- topology: t\n  flat: true\n")
    slurm = said("--network", str(tmp_path / "topology.yaml"), "--rate", "1gbit")
    assert "is a topology.yaml of Slurm, which isn't read; write its switches as" in slurm
    assert said().startswith("the rate of the servers' links is unknown: give --rate")
    table = ["--models", str(tmp_path / "m.yaml"), "--rate", "1gbit"]
    (tmp_path / "m.yaml").write_text("models: {bert: {size: -1MB}, vgg16: {size: 1MB}}\n")
    assert re.search(r"m.yaml:1: models.bert.size: '-1MB'", said(*table))
    (tmp_path / "m.yaml").write_text("models: {bert: &a {size: 9MB, compute: 1s}, vgg16: *a}\n")
    assert said("--queue", "60kB", *table) == "None"
    topology = parse_workload((tmp_path / "data.yaml").read_text(), "w").topology
    assert topology.queue == 60_000
    assert topology.network.rates_bps[0] == 1e9


@pytest.mark.parametrize("option", ["--rate", "--uplink", "--queue"])
def test_what_is_no_quantity_is_refused_by_its_option(tmp_path: Path, option: str) -> None:
    (tmp_path / "log").write_text(SACCT)
    said = CliRunner().invoke(import_, [str(tmp_path / "log"), option, "60"]).output
    assert re.search(f"{option}'?: '60' is not a (rate|size), as it has no unit", said)


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("{servers: 2, gpus: 4}", r"placement.n1: the cluster has no such server"),
        (
            "{links: [{name: a, ends: [n1, s], rate: 1gbit},"
            " {name: b, ends: [n2, s], rate: 1gbit}],"
            " servers: [{name: n1, gpus: 4}, {name: n2, gpus: 2}]}",
            "placement.n2: the server has 2",
        ),
    ],
)
def test_jobs_ran_on_what_the_cluster_has(tmp_path: Path, cluster: str, said: str) -> None:
    (tmp_path / "log").write_text(SACCT)
    (tmp_path / "c.yaml").write_text(f"cluster: {cluster}\n")
    (tmp_path / "m.yaml").write_text('models: {"*": {size: 1MB}}\n')
    options = ["--network", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "data.yaml")]
    options += ["--models", str(tmp_path / "m.yaml")]
    ran = CliRunner().invoke(import_, [str(tmp_path / "log"), *options])
    assert said in str(ran.exception)
    assert not (tmp_path / "data.yaml").exists()


def test_a_log_is_imported_first(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a b c d e f\n" * 9000)
    said = CliRunner().invoke(ask, [str(tmp_path / "log")])
    assert re.search(
        r"log:1: must be a mapping, not 'a b .*…'\. .*import` first", str(said.exception)
    )
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
    table = "models:\n  vgg16: {size: BYTES, compute: SECONDS}\n  mine: {size: BYTES,"
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
        made = parse_workload(data.read_text(), "w") if not done.exception else None
        jobs = made.jobs if made else ()
        return str(done.exception), {job.model.name: job.model for job in jobs}

    said, _ = ran("models: {none: {size: 1MB, compute: 1s}}")
    listed = yaml.safe_load(said[said.index("models:") :])["models"]
    # Those that had most GPU hours; a job that stays on one server needs no size.
    assert list(listed)[:2] == ["007", "bd"]
    assert len(listed) == 20
    assert "without 11 that had fewer GPU hours" in said
    first, rest = "007: {size: 1MB, compute: 1s}", "aa: {size: 2MB, compute: 1s}"
    _, found = ran(f'models: {{{first}, "*": {{size: 2MB, compute: 1s, flows: 2}}, {rest}}}')
    assert (found["007"].size, found["bd"].size, found["bd"].flows) == (10**6, 2 * 10**6, 2)
    assert found["alone"].size == 2 * 10**6


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
    """From a log and iterations alone: jobs as the packet simulator runs them."""
    run_folder, log, data = tmp_path / "run", tmp_path / "log", tmp_path / "data.yaml"
    options = ["--variants", "reno", "--iterations", "100", "--repetitions", "1", "--trace", "0"]
    assert main(["simulate", "rings", *options, "-o", str(run_folder)]) == 0
    run = load_run(run_folder)
    own = run.iterations[run.iterations["variant"] == "reno"]
    lines = []
    for job, rows in own.groupby("job"):
        hosts = ";".join(run.experiment.jobs[str(job)].hosts)
        start_s, end_s = rows["start_s"].min(), rows["end_s"].max()
        # Both are of one model: one is fitted to, the other predicted.
        lines.append(f"{job},{start_s},{start_s},{end_s},4,{hosts},ring,{len(rows)}")
    log.write_text(CSV + "\n".join(lines) + "\n")
    conf = (
        "".join(f"SwitchName=leaf{rack} Nodes=r{rack}h[1-4]\n" for rack in (1, 2))
        + "SwitchName=spine Switches=leaf[1-2]\n"
    )
    (tmp_path / "topology.conf").write_text(conf)
    (tmp_path / "models.yaml").write_text("models: {ring: {size: 1MB}}\n")
    arguments = ["--network", str(tmp_path / "topology.conf"), "--rate", "200mbit"]
    # Two uplinks of 100 Mbit/s, which four connections of each pair share.
    arguments += ["--uplink", "200mbit", "--models", str(tmp_path / "models.yaml")]
    assert main(["cluster", "import", str(log), "-o", str(data), *arguments]) == 0
    capsys.readouterr()
    assert main(["cluster", "ask", str(data), "--draws", "2", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["trust"]
    assert model["jobs"] == 1
    assert model["median"] == pytest.approx(1, abs=0.1)


def test_what_was_observed_is_predicted(tmp_path: Path) -> None:
    workload, held_out = calibrated(parse_workload(observed(tmp_path).read_text(), "w"))
    assert len(held_out) == 6
    compared = compare(workload, held_out)
    (found,) = trust(compared)
    assert found["jobs"] == 6
    assert found["median"] == pytest.approx(1, abs=0.05)
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
    assert compare(workload, held_out).ratio.to_list() == pytest.approx([1] * 5, abs=0.03)


def test_answers_say_what_they_can_tell(tmp_path: Path) -> None:
    data, page = observed(tmp_path), tmp_path / "page.html"
    said = CliRunner().invoke(ask, [str(data), "--draws", "2", "-o", str(page), "--json"])
    assert said.exception is None, said.output
    found = json.loads(said.stdout)
    answers = {each["question"]: each for each in found["answers"]}
    assert len(answers) == 2
    # All jobs cross the uplinks; they wait less where these are wider, or jobs stay in a rack.
    assert answers["More uplinks?"]["verdict"] == "saves"
    assert answers["Place jobs better?"]["verdict"] == "saves"
    most = found["facts"]["leaves_network"]
    for each in answers.values():
        assert each["told"] == (abs(each["saved"]) > max(each["half"], each["untold"]))
        assert each["saved"] < most + 0.01
    html = page.read_text()
    assert f"of its rules against packets, {UNTOLD:.0%})" in html
    assert 1 <= len(found["conflicts"]) <= 10
    # The one bound is that of arithmetic.
    assert "at most" not in html.partition("Two questions")[2]
    for text in ("More uplinks?", *found["facts"]["sentences"], found["conflicts"][0]["shift"]):
        assert text in unescape(html)


def test_predictions_need_observations(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("jobs: [{model: bert, gpus: 16, iterations: 10}]\n")
    said = CliRunner().invoke(ask, [str(path)])
    assert "no job that was observed" in str(said.exception)


def contended() -> str:
    """A log, without iterations, of two jobs that share uplinks, and had 600 iterations."""
    head = (
        "cluster: {servers: 4, gpus: 4, leaf: 2, oversubscription: 2, spines: 1, rate: 10gbit}\n"
        "models: {mine: {compute: 300ms, size: 200MB}}\njobs:\n"
    )
    jobs = [
        f"  - {{name: j{n}, model: mine, gpus: 8, arrival: {n}s,"
        f" placement: {{s{n}: 4, s{2 + n}: 4}}"
        for n in range(2)
    ]
    whole = head + "".join(f"{each}, iterations: 600}}\n" for each in jobs)
    ran = [job.running_s for job in simulated(by_start(parse_workload(whole, "w"))).jobs]
    return head + "".join(
        f"{each}, start: {n}s, took: {ran[n]:.3f}s}}\n" for n, each in enumerate(jobs)
    )


def test_contention_in_a_duration_is_not_counted_twice() -> None:
    """Of a log without iterations: it holds what it held, and has as many as it had."""
    raw = parse_workload(contended(), "w")
    workload, _ = calibrated(raw)
    assert overrun(compare(raw)) > 1.03
    assert overrun(compare(workload)) == pytest.approx(1, abs=0.01)
    assert [job.iterations for job in workload.jobs] == pytest.approx([600] * 2, rel=0.05)


def test_a_simulation_that_outlasts_the_log_answers_nothing(tmp_path: Path) -> None:
    """Uplinks are said to be a quarter as fast as they were."""
    text = contended().replace("oversubscription: 2", "oversubscription: 8")
    (tmp_path / "data.yaml").write_text(text.replace(", start", ", iterations: 600, start"))
    said = CliRunner().invoke(ask, [str(tmp_path / "data.yaml"), "--draws", "2"])
    assert "times the GPU hours that they held: a link is faster than this file" in said.stdout
    assert "More uplinks?" not in said.stdout
    assert "Not known; see above." in said.stdout


def test_a_run_of_an_observed_log_is_as_long_as_it(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text(contended())
    words = ["run", str(tmp_path / "data.yaml"), "--policy", "replay", "--treatment", "reno"]
    ran = CliRunner().invoke(cluster, [*words, "--json"])
    took_s = sum(job.took_s or 0 for job in parse_workload(contended(), "w").jobs)
    (run,) = json.loads(ran.stdout)["runs"]
    assert sum(job["running_s"] for job in run["each"]) == pytest.approx(took_s, rel=0.03)


def test_draws_of_an_observed_log_share_what_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.yaml").write_text(contended())
    fits: list[Workload] = []
    monkeypatch.setattr(traces, "calibrated", lambda each: (fits.append(each), calibrated(each))[1])
    first, second = read_draws(tmp_path / "data.yaml", None, 2)
    assert len(fits) == 1
    assert [job.iterations for job in first.jobs] == [job.iterations for job in second.jobs]
    assert (first.seed, second.seed) == (first.topology.seed, second.topology.seed) == (1, 2)
    assert {job.seed for job in first.jobs}.isdisjoint(job.seed for job in second.jobs)


def test_counters_beside_a_whole_table_are_not_needed(tmp_path: Path) -> None:
    (tmp_path / "counters").write_text(scraped({"n1": 2.5e9, "n2": 2.5e9}))
    (tmp_path / "log").write_text(CSV + "a,0,0,500,8,n1;n9,mine,\n")
    log, counters = read_log(tmp_path / "log"), read_counters(tmp_path / "counters")
    for known in (["mine"], ["*"]):
        assert measured(log, counters, BOTH, known) == ({}, log, False)


def test_an_uplink_slower_than_what_crossed_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "counters").write_text(scraped({"n1": 3e9, "n2": 3e9}))
    (tmp_path / "log").write_text(CSV + "a,0,0,500,8,n1;n2,mine,\n")
    ends = ({"name": "n1", "ends": ["n1", "x"]}, {"name": "n2", "ends": ["n2", "y"]})
    links = [each | {"rate": "10gbit"} for each in ends]
    links.append({"name": "up", "ends": ["x", "y"], "rate": "2gbit"})
    cluster = topology_of({"links": links, "servers": [{"name": n, "gpus": 4} for n in RATES_BPS]})
    with pytest.raises(UsageError, match=r"a sent 3 Gbit/s .* over up, .* has 2 Gbit/s"):
        measured(read_log(tmp_path / "log"), read_counters(tmp_path / "counters"), cluster)


def test_servers_that_others_had_meanwhile_are_no_remedy() -> None:
    """s1 is free when b begins, and another job's from then on."""
    text = contended().replace("j0", "a").replace("j1", "b")
    other = "  - {name: c, model: mine, gpus: 4, arrival: 30s, start: 30s, took: 99s"
    busy = parse_workload(text + other + ", placement: {s0: 4}}\n", "w")
    (found,) = conflicts(busy, most=1)
    assert (found.jobs, found.places) == (("a", "b"), ())


def test_a_job_whose_place_is_taken_waits_for_it() -> None:
    text = "cluster: {servers: 2, gpus: 4}\njobs:\n" + "".join(
        f"  - {{name: j{n}, model: bert, gpus: 4, iterations: 10, placement: {{s1: 4}}}}\n"
        for n in range(2)
    )
    first, second = simulated(parse_workload(text, "w"), how="fair").jobs
    assert second.start_s == pytest.approx(first.end_s)


def test_facts_are_arithmetic(tmp_path: Path) -> None:
    """Two servers of four GPUs; the second job waits, and half of the third's time is sending."""
    text = """
cluster: {servers: 4, gpus: 4, leaf: 2, spines: 1, rate: 10gbit}
models: {quiet: {size: 0B, compute: 1s}, loud: {size: 1GB, compute: 1s}}
jobs:
  - {name: a, model: quiet, gpus: 4, iterations: 100, start: 0s, took: 100s, placement: {s0: 4}}
  - {name: b, model: quiet, gpus: 4, iterations: 50, start: 60s, took: 50s, placement: {s1: 4}}
  - {name: c, model: loud, gpus: 8, iterations: 100, took: 200s, placement: {s1: 4, s2: 4}}
parts: {jobs: 1, gpu_hours: 1.0}
"""
    found = facts(parse_workload(text, "w"))
    whole_s = 400 + 200 + 1600
    held_s = whole_s + 3600
    assert found["gpu_hours"] == pytest.approx(held_s / 3600)
    assert found["utilisation"] == pytest.approx(whole_s / (16 * 200))
    assert (found["jobs"], found["wait_mean_s"], found["wait_median_s"]) == (4, 20, 0)
    assert (found["several"], found["leaves"]) == (pytest.approx(1600 / held_s),) * 2
    assert found["leaves_network"] == pytest.approx(800 / held_s)


@pytest.mark.parametrize(
    ("network", "leaves"),
    [("leaf: 2, spines: 1", 1.0), ("leaf: 8", 0.0), ("leaf: 8}\nassumed: [topology", 1.0)],
)
def test_bounds_hold_where_nobody_knows_where_jobs_ran(network: str, leaves: float) -> None:
    """Uplinks may save what may have crossed them."""
    close = "]" if "assumed" in network else "}"
    text = f"cluster: {{servers: 8, gpus: 4, {network}{close}\njobs:\n" + (
        "  - {name: a, model: bert, gpus: 8, iterations: 10, took: 100s}\n"
    )
    found = facts(parse_workload(text, "w"))
    assert (found["several"], found["leaves"], found["unplaced"]) == (1.0, leaves, 1.0)
    assert found["leaves_network"] == (found["several_network"] if leaves else 0.0)


def scraped(
    rates_bps: dict[str, float], reset_s: float = math.inf, period_s: float = math.inf
) -> str:
    """Samples each 10 s of servers that send at these rates for 1000 s, as Prometheus has them.
    reset_s: when counters begin again. period_s: after which they do over and over, as a rate under
    a counter's name does."""
    result = []
    for node, rate in rates_bps.items():
        for device, share in (("eth0", 0.75), ("ib0", 0.25), ("lo", 9.0), ("bond0", 1.0)):
            values = [
                [at, str(rate / 8 * share * ((at if at < reset_s else at - reset_s) % period_s))]
                for at in range(0, 1001, 10)
            ]
            labels = {"instance": f"{node}.example.org:9100", "device": device}
            labels["__name__"] = "node_network_transmit_bytes_total"
            values[40][1] = "NaN"  # as of a scrape that failed
            result.append({"metric": labels, "values": values})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


RATES_BPS = {"n1": 10e9, "n2": 10e9}
BOTH = topology_of(
    {
        "links": [{"name": n, "ends": [n, "switch"], "rate": "10gbit"} for n in RATES_BPS],
        "servers": [{"name": n, "gpus": 4} for n in RATES_BPS],
    }
)


@pytest.mark.parametrize("iterations", ["", "500"])
def test_counters_say_what_models_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], iterations: str
) -> None:
    """Two servers that send a quarter of 10 Gbit/s, and a counter that began anew."""
    lines = [f"a,0,0,500,8,n1;n2,mine,{iterations}", f"b,500,500,1000,8,n1;n3,mine,{iterations}"]
    # Others were on their servers, too; what they sent can't be told from each other's.
    lines += ["c,0,0,1000,2,n4;n5,other,", "d,0,0,1000,2,n4;n5,mine,"]
    # Inside one server nothing is sent, which says nothing of the computing of those that send.
    lines += [f"e{n},0,0,400,4,n{6 + n},mine," for n in range(9)]
    rates = {f"n{n}": 2.5e9 if n < 4 else 1e9 for n in range(1, 6)}
    (tmp_path / "counters").write_text(scraped(rates, 250))
    table = "models: {other: {size: 1MB, compute: 1s}}"
    (tmp_path / "m.yaml").write_text(table)
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    data = tmp_path / "data.yaml"
    words = ["--rate", "10gbit", "--models", str(tmp_path / "m.yaml"), "-o", str(data)]
    words += ["--counters", str(tmp_path / "counters")]
    assert main(["cluster", "import", str(tmp_path / "log"), *words]) == 0
    made = parse_workload(data.read_text(), "w")
    jobs = {job.name: job for job in made.jobs}
    # A ring of two sends each gradient once; an iteration is a second.
    assert jobs["a"].model.size == pytest.approx(2.5e9 / 8, rel=0.05)
    assert jobs["a"].iterations == jobs["b"].iterations == 500
    assert jobs["a"].model.compute_s == pytest.approx(0.75, abs=0.03)
    own = replace(made, jobs=tuple(job for job in made.jobs if job.name in ("a", "b", "e0")))
    assert facts(own)["several_network"] == pytest.approx(8000 * 0.25 / 9600, abs=0.02)
    # One job without iterations has those of the others of its model.
    assert jobs["d"].iterations == 1000
    assert ("iteration" in made.assumed) == (iterations == "")
    assert facts(made)["fitted"] == (iterations != "")
    said = capsys.readouterr().err
    assert ("1 s is assumed" in said) == (iterations == "")
    assert "measured by counters (they have 5 of the log's 14 servers, not n10, n11, n12" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "is not what Prometheus.s"),
        ('{"data": {"result": 5}}', "is not what Prometheus's"),
        ("node_network_transmit_bytes_total 5 1\n", "is not what Prometheus's"),
        (scraped({"n9": 1e9}), r"to itself: they have 0 of .* not n1, n2 \(but n9.example.org\)"),
        (scraped({"n1": 1e9}).replace("__name__", "was"), r"has no .* itself, without rate"),
        (scraped({"n1": 3e9, "n2": 12e9}), r"a sent 12 Gbit/s .* over n2, .* that link has 10"),
        (scraped({"n1": 3e9, "n2": -1e9}), "n2.example.org are negative"),
        (scraped({"n1": 1e9}, period_s=30), "n1.example.org are negative, or fall 33 times"),
        (scraped({"n1": 9e6, "n2": 9e6}), r"almost no bytes .* on several servers \(mine\)"),
    ],
)
def test_counters_that_say_nothing_are_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "log").write_text(CSV + "a,0,0,500,8,n1;n2,mine,\n")
    (tmp_path / "counters").write_text(text)
    with pytest.raises(UsageError, match=said):
        measured(read_log(tmp_path / "log"), read_counters(tmp_path / "counters"), BOTH)


@pytest.mark.parametrize(
    ("hours", "steady", "said"),
    [(0, False, ""), (1, False, "1 h before"), (-5.5, False, "5.5 h after"), (1, True, "")],
)
def test_counters_of_another_time_zone_are_noticed(
    tmp_path: Path, hours: float, steady: bool, said: str
) -> None:
    """Jobs of random length on two servers, which send only while these run, or always."""
    draw, at_s, lines = np.random.default_rng(1), 50_000.0, []
    busy = np.zeros(3000)
    for n in range(30):
        at_s, end_s = (at_s + gap for gap in np.cumsum(draw.uniform(600, 2000, 2)))
        busy[int(at_s / 60) : int(end_s / 60)] = 3e9 * 60 / 8
        shown = [each + 3600 * hours for each in (at_s, at_s, end_s)]
        lines.append(f"a{n},{','.join(f'{each:.0f}' for each in shown)},8,n1;n2,mine,")
        at_s = end_s
    busy = np.full(3000, 1e9 / 3) if steady else busy
    values = [[60.0 * n, f"{each:.0f}"] for n, each in enumerate(np.cumsum(busy))]
    labels = {"__name__": "node_network_transmit_bytes_total", "device": "eth0"}
    result = [{"metric": labels | {"instance": name}, "values": values} for name in RATES_BPS]
    (tmp_path / "counters").write_text(json.dumps({"data": {"result": result}}))
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    log, counters = read_log(tmp_path / "log"), read_counters(tmp_path / "counters")
    if said:
        with pytest.raises(UsageError, match=f"changes {said} jobs start and end"):
            measured(log, counters, BOTH)
    else:
        assert measured(log, counters, BOTH)[0]


@pytest.mark.parametrize(("took_s", "left"), [(20, 1), (400, 0)])
def test_models_unseen_by_counters_send_nothing_if_few(
    tmp_path: Path, took_s: int, left: int
) -> None:
    """Two jobs of which no samples tell what they sent; asked for where they hold a large part."""
    lines = ["a,0,0,500,8,n1;n2,mine,"]
    lines += [f"b{n},600,600,{600 + took_s},8,n1;n2,other," for n in range(2)]
    (tmp_path / "counters").write_text(scraped({"n1": 2.5e9, "n2": 2.5e9}))
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    counters = read_counters(tmp_path / "counters")
    found, log, _ = measured(read_log(tmp_path / "log"), counters, BOTH)
    assert (found.get("other") == {"size": "0B"}) == bool(left)
    assert ["2 jobs of models that the counters don't show (other)" in n for n in log.notes] == [
        True
    ] * left


def test_jobs_inside_a_server_say_nothing_of_those_between(tmp_path: Path) -> None:
    """Their iterations are as long, as if the network were free; the bound remains a bound."""
    text = """
cluster: {servers: 4, gpus: 4, leaf: 4, spines: 1, rate: 10gbit}
models: {mine: {size: 500MB}}
jobs:
"""
    for n in range(9):
        place = "{s0: 2, s1: 2}" if n < 3 else "{s2: 4}"
        text += (
            f"  - {{name: j{n}, model: mine, gpus: 4, iterations: 100, arrival: {200 * n}s,"
            f" start: {200 * n}s, took: 100s, placement: {place}}}\n"
        )
    workload, held_out = calibrated(parse_workload(text, "w"))
    assert held_out == {"j2"}
    assert "computing times that follow from iterations" in sentences(facts(workload))[2]
    # Half a gigabyte takes 0.4 s of each second.
    assert facts(workload)["several_network"] == pytest.approx(0.4 * 3 / 9, abs=0.02)


def test_conflicts_name_the_link_the_jobs_and_a_remedy() -> None:
    """a and b collide on the uplinks, and two servers below one leaf are free; c meets nobody."""
    text = """
cluster: {servers: 8, gpus: 4, leaf: 4, oversubscription: 4, spines: 1, rate: 10gbit}
models: {loud: {size: 200MB, compute: 200ms}}
jobs:
"""
    for name, start_s, first, second in (("a", 0, 0, 4), ("b", 5, 1, 5), ("c", 5, 6, 7)):
        text += (
            f"  - {{name: {name}, model: loud, gpus: 8, iterations: 500, arrival: {start_s}s,"
            f" start: {start_s}s, took: 200s, placement: {{s{first}: 4, s{second}: 4}}}}\n"
        )
    workload = parse_workload(text, "w")
    worst = conflicts(workload)
    assert {each.jobs for each in worst} == {("a", "b")}
    # Both cross the uplinks of both leaves, and would gain by none of them alone.
    assert [set(each.links) for each in worst] == [{"leaf0.0", "leaf1.0"}]
    assert worst[0].places == ("s1", "s2")
    assert (worst[0].moved, worst[0].slower[0]) == (
        pytest.approx(worst[0].hours),
        pytest.approx(worst[0].lost[0] / (8 * 200 / 3600 - worst[0].lost[0])),
    )
    assert (worst[0].from_s, worst[0].until_s) == (5, 200)
    since = [replace(workload, origin_s=at) for at in (0.0, 1772359200.0, 1772409540.0)]
    shown = [conflict_rows(conflicts(each, most=1))[1][1] for each in since]
    days = ["2026-03-01 10:00 to 10:03", "2026-03-01 23:59 to 2026-03-02 00:02"]
    assert shown == ["5.0 s to 3.3 min", *days]
    alone_s = 500 * placed_s(workload.jobs[0].model, {0: 4, 4: 4}, workload.topology)
    ran = [job.running_s for job in simulated(by_start(workload)).jobs if job.name != "c"]
    lost_h = 8 * (sum(ran) - 2 * alone_s) / 3600
    assert sum(each.hours for each in worst) == pytest.approx(lost_h, rel=0.1)
    # Both send for less than half of their time, so that a shift separates them.
    assert worst[0].score == pytest.approx(1, abs=0.05)
    assert worst[0].remedies[1].startswith("by ")
    assert worst[0].mltcp_half > 0
    # What depends on a period isn't said where nobody gave one.
    (first, *_) = conflicts(replace(workload, assumed=("iteration",)))
    assert (first.jobs, first.remedies[1:]) == (("a", "b"), ("needs iterations",) * 2)
    assert "aren't tried" in conflict_sentence([first], 1.0)
    # Alone they lose nothing.
    apart = replace(workload, jobs=(workload.jobs[0], workload.jobs[2]))
    assert conflicts(apart) == []


@pytest.mark.parametrize(
    ("score", "shift_s", "said"),
    [
        (None, 0.0, "separate the jobs of 0; no shift helps in 1"),
        (0.9, 0.1, "separate the jobs of 0; no shift helps in 1"),
        (0.99, 0.1, "separate the jobs of 1; no shift helps in 0"),
        (1.0, 0.0, "separate the jobs of 0; no shift helps in 0"),
    ],
)
def test_shifts_that_help_or_do_not_are_counted(
    score: float | None, shift_s: float, said: str
) -> None:
    ends = (("l",), ("a", "b"), 0.0, 9.0, (1.0, 0.5), (0.1, 0.1), (), 0.0)
    found = Conflict(*ends, score, (shift_s,), 0.01, 0.02)
    assert said in conflict_sentence([found], 10.0)


def imported(tmp_path: Path, lines: list[str], model: str, *words: str) -> str:
    """The file that the real `cluster import` makes of a CSV's lines."""
    (tmp_path / "log").write_text(CSV + "\n".join(lines) + "\n")
    (tmp_path / "topology.conf").write_text(CONF)
    (tmp_path / "m.yaml").write_text(f"models: {{mine: {{{model}}}}}\n")
    table = ["--models", str(tmp_path / "m.yaml"), "--rate", "10gbit"]
    data = str(tmp_path / "data.yaml")
    assert main(["cluster", "import", str(tmp_path / "log"), "-o", data, *table, *words]) == 0
    return data


def asked(capsys: pytest.CaptureFixture[str], data: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["cluster", "ask", data, "--draws", "2", "--json"]) == 0
    return list(json.loads(capsys.readouterr().out)["answers"])


def test_the_page_says_where_its_numbers_are_from(tmp_path: Path) -> None:
    lines = ["a,0,0,300,2,n1;n3,mine,100", "b,0,0,300,2,n1;n3,mine,x", "c,0,0,300,2,n2;n4,mine,"]
    conf = ["--network", str(tmp_path / "topology.conf"), "--uplink", "20gbit"]
    data = imported(tmp_path, lines, "size: 200MB, compute: 1s", *conf)
    assert main(["cluster", "ask", data, "--draws", "2", "-o", str(tmp_path / "page.html")]) == 0
    html = unescape((tmp_path / "page.html").read_text())
    assert re.search(r"Jobs: 2 jobs of log; left out: 1 that can't be read \(first", html)
    assert re.search(
        r"Network: topology.conf, servers' links 10gbit, uplinks 20gbit\.",
        html,
    )
    assert (
        "Cluster: 4 GPUs (1 on 4 servers), servers that had jobs, each with as many GPUs as" in html
    )
    assert re.search(r"Bytes that models send: 1 model of m.yaml\.", html)


CROSSING = [f"a{n},0,{n},{3000 + n},2,n{1 + n % 2};n{3 + n % 2},mine," for n in range(4)]


def test_no_computing_time_is_invented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = ["--network", str(tmp_path / "topology.conf"), "--uplink", "10gbit"]
    # A second of computing leaves nothing to be saved.
    given = asked(capsys, imported(tmp_path, CROSSING, "size: 20MB, compute: 1s", *conf))
    assert all(abs(float(str(each["saved"]))) < 0.02 for each in given)
    # Below what arithmetic leaves, which is less than the model's error.
    assert {each["verdict"] for each in given} == {"can't tell: below 2%"}
    (tmp_path / "m.yaml").write_text("models: {mine: {size: 200MB}}\n")
    words = [str(tmp_path / "log"), "--models", str(tmp_path / "m.yaml"), "--rate", "10gbit", *conf]
    assert main(["cluster", "import", *words, "-o", str(tmp_path / "none.yaml")]) == 2
    assert "nothing says how long an iteration of mine computes" in capsys.readouterr().err
    assert not (tmp_path / "none.yaml").exists()


@pytest.mark.parametrize(
    ("nodes", "uplink", "said"),
    [
        ("n1", "10gbit", "no effect: no job sends between servers"),
        ("", "10gbit", "no effect: no job sends between servers"),
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
    words = [] if uplink == "" else ["--network", str(tmp_path / "topology.conf")]
    words += ["--uplink", uplink] if uplink else []
    line = f"a,0,0,3000,2,{nodes},mine,"
    # The others make the servers known.
    others = [f"b{n},0,0,9,2,n{n},mine," for n in (2, 3)]
    data = imported(tmp_path, [line, *others], "size: 20MB, compute: 1s", *words)
    noted = capsys.readouterr().err
    assert ("(--uplink)" in noted) == (uplink is None)
    assert ("(--network)" in noted) == (uplink == "")
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
    true = answers_of(saturated("compute: 40ms, ", took_s), None, draws=2)[1]
    workload, _ = calibrated(saturated("", took_s))
    found = answers_of(workload, None, draws=2)[1]
    assert true.saved is not None
    assert found.saved is not None
    assert abs(found.saved - true.saved) < found.half
    assert found.half > true.half
