# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that share GPUs: what the simulator makes of them, policies, and measured pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.clusters.models import Allocation, Model
from mltcp_tools.clusters.pairs import Pairs, read_pairs
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Decision, Shared, View
from mltcp_tools.clusters.workload import ClusterJob, Workload

ONE = regular(servers=1, gpus=1, leaf=1, oversubscription=1.0, spines=1, rate_bps=10e9)
CALM, LOUD, THIRD = (Model(name, 0.1, 0) for name in ("calm", "loud", "third"))
PAIRS = Pairs(
    {each.name: each for each in (CALM, LOUD, THIRD)},
    {
        ("calm", "loud"): 2.0,
        ("loud", "calm"): 1.25,
        ("calm", "third"): 1.25,
        ("third", "calm"): 1.25,
    },
)


class Together:
    """Everybody on the first job's GPU."""

    name = "together"
    round_s: float | None = None

    def decide(self, view: View) -> Decision:
        """The first one has it, the next one is its guest."""
        states = sorted((*view.running, *view.waiting), key=lambda state: state.number)
        decided: dict[int, Allocation] = {states[0].number: {0: 1}} if states else {}
        for state in states[1:2]:
            decided[state.number] = Shared({0: 1}, states[0].number)
        return decided


def workload(*jobs: tuple[Model, int], pairs: Pairs | None = PAIRS) -> Workload:
    """Jobs of so many iterations on one GPU, all there from the start."""
    made = tuple(ClusterJob(f"job-{n}", model, 1, count) for n, (model, count) in enumerate(jobs))
    return Workload(ONE, made, pairs=pairs)


def test_jobs_that_share_slow_each_other_until_one_ends() -> None:
    outcome = ClusterSimulator(
        workload((CALM, 1000), (LOUD, 1000)), Together(), treatment("reno")
    ).run()
    ends_s = {job.name: job.end_s for job in outcome.jobs}
    # The loud one takes 1.25 times 100 s; by then the calm one has done 62.5 s of its work.
    assert ends_s["job-1"] == pytest.approx(125, rel=2e-3)
    assert ends_s["job-0"] == pytest.approx(125 + 37.5, rel=2e-3)
    assert sum(job.restarts for job in outcome.jobs) == 0
    # One GPU that was never idle, whoever had it.
    assert outcome.summary()["utilisation"] == pytest.approx(1)


def test_a_guest_whose_host_ends_goes_on_alone() -> None:
    outcome = ClusterSimulator(
        workload((LOUD, 800), (CALM, 1000), (THIRD, 8)), Together(), treatment("reno")
    ).run()
    ends_s = {job.name: job.end_s for job in outcome.jobs}
    assert ends_s["job-0"] == pytest.approx(100, rel=2e-3)
    # Half of its work is done by then; the next guest slows it for a second.
    assert ends_s["job-2"] == pytest.approx(101, rel=2e-3)
    assert ends_s["job-1"] == pytest.approx(100 + 50 + 0.2, rel=2e-3)
    assert sum(job.restarts for job in outcome.jobs) == 0


def test_jobs_whose_pair_is_unknown_may_not_share() -> None:
    with pytest.raises(MltcpError, match="lets job job-1 share the GPUs of job job-0"):
        ClusterSimulator(workload((LOUD, 10), (THIRD, 10)), Together(), treatment("reno")).run()
    with pytest.raises(UsageError, match="--pairs"):
        ClusterSimulator(
            workload((CALM, 10), pairs=None), policy("predicted"), treatment("reno")
        ).run()


def test_the_guest_is_the_one_with_whom_both_do_most() -> None:
    """By a model whose seed lets it see both pairs; the next in line waits."""
    jobs = workload((CALM, 1000), (LOUD, 1100), (THIRD, 1200))
    done = ClusterSimulator(jobs, policy("predicted", 6), treatment("reno")).run().jobs
    first = {job.model: job.start_s for job in done}
    assert first["third"] == 0 < first["loud"]


TABLE = {
    "v100": {
        "('ResNet-18 (batch size 64)', 1)": {
            "null": 10.0,
            "('ResNet-18 (batch size 64)', 1)": [5.0, 5.0],
            "('A3C', 1)": [8.0, 5.0],
        },
        "('A3C', 1)": {
            "null": 20.0,
            "('ResNet-18 (batch size 64)', 1)": [5.0, 8.0],
            "('A3C', 1)": [0.0, 0.0],
        },
        "('A3C', 2)": {"null": 30.0},
    }
}


def test_pairs_are_read_as_slow_downs(tmp_path: Path) -> None:
    file = tmp_path / "throughputs.json"
    file.write_text(json.dumps(TABLE))
    pairs = read_pairs(f"gavel:{file}")
    resnet, a3c = pairs.models["resnet18-64"], pairs.models["a3c"]
    assert resnet.compute_s == pytest.approx(0.1)
    assert pairs.slowdowns(resnet, a3c) == pytest.approx((1.25, 4.0))
    # No memory for both.
    assert pairs.slowdowns(a3c, a3c) is None


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "is not JSON"),
        ("[]", "v100: missing"),
        ('{"v100": {}}', "no pair"),
        ('{"v100": {"(\'A3C\', 1)": 5}}', "A3C.*: must be a table"),
        ('{"v100": {"(\'A3C\', 1)": {"null": NaN}}}', "A3C.*null: must be 0 or more"),
        ('{"v100": {"(\'A3C\', 1)": {"null": "x"}}}', "A3C.*null: must be a number"),
        ('{"v100": {"(\'A3C\', 1)": {"null": 0}}}', "A3C.*null: must be more than 0"),
        ('{"v100": {"(\'A3C\', 1)": {"null": 1, "(\'A3C\', 1)": 3}}}', "must be two numbers"),
    ],
)
def test_a_wrong_table_of_pairs_is_told_where(tmp_path: Path, text: str, wrong: str) -> None:
    file = tmp_path / "throughputs.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=wrong):
        read_pairs(f"gavel:{file}")
    with pytest.raises(UsageError, match="can't be read"):
        read_pairs(f"gavel:{tmp_path}/nothing")
    with pytest.raises(UsageError, match="write gavel:FILE"):
        read_pairs(str(file))


def test_rounds_are_as_short_as_a_trace() -> None:
    plain, paced = policy("elastic"), policy("elastic", pace=10.0)
    assert paced.round_s == pytest.approx((plain.round_s or 0) / 10)


def test_waiting_job_with_fewest_gpu_seconds_goes_first() -> None:
    """Not the shortest one, which holds four times the GPUs."""
    model = Model("a", 0.1, 0)
    jobs = (
        ClusterJob("first", model, 4, 1000),
        ClusterJob("wide", model, 4, 1000, 1.0),
        *(ClusterJob(f"narrow-{n}", model, 1, 1500, 2.0) for n in range(4)),
    )
    topology = regular(servers=1, gpus=4, leaf=1, spines=1)
    done = (
        ClusterSimulator(Workload(topology, jobs), policy("elastic"), treatment("fair")).run().jobs
    )
    ends = {each.name: each.end_s for each in done}
    assert max(ends[f"narrow-{n}"] for n in range(4)) < ends["wide"]
