# SPDX-License-Identifier: BSD-2-Clause
"""Workloads on clusters: what policies and treatments do, and what bad input gets."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.mistakes import mistakes, refusal

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.models import MODELS, Allocation, Model, iteration_of
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies import POLICIES, cassini, policy
from mltcp_tools.clusters.policies.orders import Fifo
from mltcp_tools.clusters.policies.placing import Place, fitting, shape, shuffled
from mltcp_tools.clusters.reading import parse_workload
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.traces import read_jobs, read_requests
from mltcp_tools.clusters.view import Ints, JobState, View
from mltcp_tools.clusters.workload import (
    ClusterJob,
    Generated,
    Workload,
    alone_s,
    generate,
)
from mltcp_tools.lab.planning.network import PAYLOAD

SMALL = regular(servers=8, gpus=4, leaf=2, oversubscription=2.0, spines=2, rate_bps=10e9)
BUSY = Model("busy", 0.1, 50_000_000)


def drawn(jobs: int = 30, seed: int = 3, **fields: float) -> Workload:
    """Some jobs of one to four servers on the small cluster."""
    draws = Generated(jobs=jobs, load=0.9, hours=0.1, gpus={2: 1, 4: 2, 8: 2, 16: 1}, **fields)  # type: ignore[arg-type]
    return Workload(SMALL, generate(SMALL, draws, seed))


def run(workload: Workload, name: str = "fifo", how: str = "mltcp") -> Outcome:
    """The outcome under a policy and a treatment."""
    return ClusterSimulator(workload, policy(name), treatment(how)).run()


def slowdowns(workload: Workload, place: Place, how: str) -> list[float]:
    """The slow-downs of jobs that are placed so, under a treatment."""
    outcome = ClusterSimulator(workload, Fifo(place), treatment(how)).run()
    return [job.slowdown for job in outcome.jobs]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_ends_all_jobs_and_again_the_same(name: str) -> None:
    workload = drawn()
    outcomes = [run(workload, name) for _ in range(2)]
    assert len(outcomes[0].jobs) == 30
    assert outcomes[0].jobs == outcomes[1].jobs
    assert 0 < outcomes[0].summary()["utilisation"] <= 1  # type: ignore[operator]


@pytest.mark.parametrize("how", ["fair", "reno", "mltcp", "time_shifts"])
def test_every_treatment_ends_all_jobs_not_before_alone(how: str) -> None:
    done = run(drawn(20), how=how).jobs
    assert len(done) == 20
    assert min(job.slowdown for job in done) > 0.97


def test_a_job_alone_takes_its_lone_iterations() -> None:
    job = ClusterJob("one", BUSY, 8, 100)
    (done,) = run(Workload(SMALL, (job,))).jobs
    assert done.completion_s == pytest.approx(100 * alone_s(job.model, job.gpus, SMALL))
    assert done.slowdown == pytest.approx(1)
    # 2 servers: each sends the whole gradient once at 10 Gbit/s, less headers, in two steps.
    assert done.iteration_s == pytest.approx(0.1 + 50e6 * 8 / (10e9 * PAYLOAD) + 2 * 20e-6)


def test_jobs_that_share_uplinks_gain_by_mltcp() -> None:
    narrow = regular(servers=8, gpus=4, leaf=2, oversubscription=4.0, spines=2, rate_bps=10e9)
    jobs = tuple(ClusterJob(f"j{n}", BUSY, 8, 400, seed=n) for n in range(4))
    reno, mltcp = (
        np.mean(slowdowns(Workload(narrow, jobs), shuffled(1), how)) for how in ("reno", "mltcp")
    )
    assert 1 < mltcp < reno


def crowded(view: View, free: Ints, state: JobState) -> Allocation:
    """Two jobs of two servers on the uplinks of the first two leaves."""
    return fitting(free, np.array([0, 2, 1, 3, 4, 5, 6, 7]), shape(state.job, view.topology))


def pair(compute_s: float) -> Workload:
    """Two jobs that compute so long, and send for 0.084 s in each iteration."""
    topology = regular(servers=8, gpus=1, leaf=2, oversubscription=2.0, spines=1, rate_bps=10e9)
    jobs = (ClusterJob(f"j{n}", Model("m", compute_s, 50_000_000), 2, 100) for n in range(2))
    return Workload(topology, tuple(jobs))


def test_time_shifts_separate_the_bursts_of_jobs_that_fit() -> None:
    assert min(slowdowns(pair(0.2), crowded, "reno")) > 1.1
    assert max(slowdowns(pair(0.2), crowded, "time_shifts")) < 1.05


def test_jobs_that_do_not_fit_get_no_time_shifts() -> None:
    shifted = slowdowns(pair(0.01), crowded, "time_shifts")
    assert shifted == slowdowns(pair(0.01), crowded, "reno")


def test_cassini_avoids_a_place_where_jobs_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassini, "place", crowded)
    assert min(slowdowns(pair(0.01), crowded, "fair")) > 1.5
    assert max(job.slowdown for job in run(pair(0.01), "cassini", "fair").jobs) < 1.01


def test_a_replayed_job_is_not_overtaken_on_its_servers() -> None:
    """`wide` waits for the second server; `late` came after it, and would fit on the first."""
    places = {"long": {1: 4}, "wide": {0: 4, 1: 4}, "late": {0: 4}}
    jobs = tuple(
        ClusterJob(name, BUSY, sum(own.values()), 100, float(n), placement=tuple(own.items()))
        for n, (name, own) in enumerate(places.items())
    )
    assert [done.name for done in run(Workload(SMALL, jobs), "replay").jobs] == [*places]


def test_rings_cross_links_there_and_back_alike() -> None:
    topology = regular(servers=16, leaf=2, spines=2)
    own = iteration_of(BUSY, topology, dict.fromkeys((0, 3, 9, 14), 8), 1)
    up = sum(n for link, n in own.crossings.items() if topology.network.names[link].endswith(">"))
    down = sum(
        n for link, n in own.crossings.items() if topology.network.names[link].startswith(">")
    )
    assert up == down
    assert all(own.crossings[topology.network.names.index(f"s{server}>")] == 1 for server in (0, 3))


WORKLOAD = """
cluster: {servers: 8, gpus: 4, rate: 10gbit, leaf: 2, oversubscription: 2}
jobs:
  - {name: a, model: vgg16, gpus: 8, iterations: 20}
  - {name: b, model: bert, gpus: 4, iterations: 20, arrival: 1min}
"""


@mistakes(
    ("10gbit", "0gbit", "w.yaml:2: cluster.rate: must be more than 0"),
    ("oversubscription: 2", "oversubscription: .nan", "more than 0, not nan"),
    ("gpus: 8", "gpus: 64", "asks for 64 GPUs, and the cluster has 32"),
    ("vgg16", "vgg61", "w.yaml:4: jobs[1].model: there is no model 'vgg61'"),
    (
        "iterations: 20}\n  - {name: b",
        "iterations: 20, arrival: 2min}\n  - {name: b",
        "earlier than the job before it",
    ),
    (
        "iterations: 20}\n  - {name: b",
        "iterations: 0}\n  - {name: b",
        "not a whole number from 1 up",
    ),
    ("{servers: 8", "{queue: 0B, servers: 8", "cluster: queue must be more than 0, not 0"),
    ("{servers: 8", "&a {queue: *a, servers: 8", "w.yaml:2: cluster.queue: must be a value"),
    ("jobs:", "models: {a: {}}\njobs:", "w.yaml:3: models.a.size: missing"),
)
def test_a_wrong_workload_is_refused_in_one_sentence(old: str, new: str, complaint: str) -> None:
    assert complaint in refusal(parse_workload, WORKLOAD, old, new, "w.yaml")


def test_times_may_be_in_hours_and_days() -> None:
    read = [parse_workload(WORKLOAD.replace("1min", each), "w").jobs[1] for each in ("3h", "2d")]
    assert [job.arrival_s for job in read] == [10_800, 172_800]


SIA = "name,time,application,num_replicas,batch_size\n"
ELASTIC = "job_id,submit_time,model_name,ddl,batch_size,num_gpu,duration,iteration\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(folder: Path, text: str) -> str:
    path = folder / "trace"
    path.write_text(text)
    return str(path)


def test_traces_are_read(tmp_path: Path) -> None:
    (job,) = read_jobs(f"sia:{write(tmp_path, SIA + 'x,7,bert,4,48')}", SMALL)
    assert (job.gpus, job.iterations) == (4, 5500)
    text = ELASTIC + "0,10,vgg16,5000,64,1,1000,2000"
    (job,) = read_jobs(f"elasticflow:{write(tmp_path, text)}", SMALL)
    assert (job.gpus, alone_s(job.model, 1, SMALL)) == (1, pytest.approx(0.5))
    text = AZURE + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0799600,3,8\n"
    requests = read_requests(f"azure:{write(tmp_path, text)}")
    assert [(r.arrival_s, r.context, r.generated) for r in requests] == [
        (0.0, 4808, 10),
        (pytest.approx(0.1, abs=1e-6), 3, 8),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,nan,bert,1,48\n", "trace:2: time: 'nan' is no time"),
        ("a,1,bert,99,48\n", "trace:2: num_replicas: 99 GPUs"),
        ("a,9,bert,1,48\nb,1,bert,1,48\n", "trace:3: time: earlier than the line"),
        ("a,1,word2vec,4,48\n", "trace:2: application: 'word2vec' is not one of"),
        ("a,1,bert,4,\n", "trace:2: batch_size: missing"),
        ("", "trace:1: the trace is empty"),
    ],
)
def test_a_wrong_trace_names_line_and_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_jobs(f"sia:{write(tmp_path, SIA + text)}", SMALL)
    assert said in str(error.value)


def test_a_wrong_trace_of_requests_names_line_and_field(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="trace:2: TIMESTAMP: 'now' is no time"):
        read_requests(f"azure:{write(tmp_path, AZURE + 'now,1,2')}")
    with pytest.raises(UsageError, match="names no trace"):
        read_jobs("philly:x", SMALL)
    with pytest.raises(UsageError, match="trace:2: duration: missing"):
        read_jobs(f"elasticflow:{write(tmp_path, ELASTIC + '0,1,vgg16,5,6,1,,7')}", SMALL)


def test_the_plan_gives_no_gpus_that_make_a_job_slower() -> None:
    """Beyond one server, this job would send for longer than its GPUs save."""
    topology = regular(servers=4, gpus=4, leaf=4, rate_bps=25e9)
    job = ClusterJob("a", dataclasses.replace(MODELS["bert"], noise=4.0), 4, 100)
    state = JobState(0, job, alone_s(job.model, job.gpus, topology))
    view = View(0.0, topology, np.full(4, 4), (state,), (), lambda _: 0.0)
    assert sum(policy("elastic").decide(view)[0].values()) == 4


ANY = """
cluster:
  links:
    - {name: n1, ends: [a1, rack-1], rate: 10gbit}
    - {name: n2, ends: [a2, rack-1], rate: 10gbit}
    - {name: n3, ends: [b1, rack-2], rate: 5gbit}
    - {name: up-1, ends: [rack-1, spine], rate: 10gbit}
    - {name: up-2, ends: [rack-2, spine], rate: 10gbit}
  servers:
    - {name: a1, gpus: 4}
    - {name: a2, gpus: 2}
    - {name: b1, gpus: 8}
models: {mine: {compute: 100ms, size: 50MB}}
jobs:
  - {name: inside, model: mine, gpus: 8, iterations: 100}
  - {name: near, model: mine, gpus: 6, iterations: 100, placement: {a1: 4, a2: 2}}
"""


def test_any_links_and_mixed_servers_make_a_cluster() -> None:
    workload = parse_workload(ANY, "any.yaml")
    topology = workload.topology
    assert (topology.total_gpus, topology.leaves, topology.gpus) == (14, 2, 8)
    crossed = [topology.network.names[link] for link in topology.path(0, 2, 1)]
    assert crossed == ["n1>", "up-1>", ">up-2", ">n3"]
    inside, near = sorted(run(workload).jobs, key=lambda job: job.name)
    ring_s = 50e6 * 8 / (10e9 * PAYLOAD)
    assert near.iteration_s == pytest.approx(0.1 + ring_s, rel=1e-3)
    # Inside one server nothing is sent.
    assert inside.iteration_s == pytest.approx(0.1, rel=1e-3)


def test_a_server_that_nothing_joins_is_refused() -> None:
    text = ANY.replace("name: a2", "name: a9").replace("a2: 2", "a9: 2")
    with pytest.raises(UsageError, match="no link has an end 'a9'"):
        run(parse_workload(text, "any.yaml"))


def test_seeds_reach_paths_and_jobs_that_are_listed() -> None:
    text = (
        "cluster: {{servers: 8, leaf: 2, spines: 4}}\nseed: {}\n"
        "jobs: [{{model: bert, gpus: 16, iterations: 1}}]"
    )
    one, other = (parse_workload(text.format(seed), "w.yaml") for seed in (1, 2))
    assert one.jobs[0].seed != other.jobs[0].seed
    pairs = [(a, b) for a in (0, 2, 4, 6) for b in (0, 2, 4, 6) if a != b]
    assert [one.topology.path(*ends, 1) for ends in pairs] != [
        other.topology.path(*ends, 1) for ends in pairs
    ]
