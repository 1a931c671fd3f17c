# SPDX-License-Identifier: BSD-2-Clause
"""A workload on a cluster under a policy and a treatment, in virtual time.

A policy is asked at every arrival and end, when servers are lent or given back, and in its rounds.
Jobs it moves, grows or shrinks go on from where they are, and wait RESTART_S for that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.clusters.engine.library import FlowJob, FlowSimulator, Iteration
from mltcp_tools.clusters.models import Allocation, iteration_of, lag_s
from mltcp_tools.clusters.outcome import Done, Outcome
from mltcp_tools.clusters.policies.plan import Scaled, reclaim_cost, scaled
from mltcp_tools.clusters.rules import Treatment
from mltcp_tools.clusters.time_shifts import plan_time_shifts
from mltcp_tools.clusters.view import RESTART_S, Decision, JobState, Policy, View
from mltcp_tools.clusters.workload import Workload, alone_s
from mltcp_tools.lab.emulator.time_shift import REALIGN

_LAST_S = 1e9


@dataclass
class _Run:
    """A stretch in which a job's place is the same. lost_s: by link, what was noted of it."""

    engine: int
    own: Iteration
    iterations: int
    scaled: Scaled
    lost_s: dict[int, float] = field(default_factory=dict)


class Losses:
    """GPU seconds for which jobs sent longer than alone, by what made them: `by_pair` has (link, a
    job, the one that slowed it); both directions of a link count as one. What a job loses on a full
    link is divided among the others that are placed on it, by what they send over it."""

    def __init__(self) -> None:
        self.by_pair: dict[tuple[int, int, int], float] = defaultdict(float)

    def note(self, engine: FlowSimulator, runs: Mapping[int, _Run], workload: Workload) -> None:
        """Add what was lost since the last time."""
        sends: dict[int, dict[int, float]] = defaultdict(dict)
        for number, run in runs.items():
            for link, times in run.own.crossings.items():
                sends[link][number] = times * run.own.size
        for number, run in runs.items():
            lost_s = engine.lost(run.engine, run.own)
            for link, seconds in lost_s.items():
                others = {other: sent for other, sent in sends[link].items() if other != number}
                more_s = (seconds - run.lost_s.get(link, 0.0)) * workload.jobs[number].gpus
                for other, sent in others.items() if more_s > 0 else ():
                    self.by_pair[link >> 1, number, other] += more_s * sent / sum(others.values())
            run.lost_s = lost_s


@dataclass
class _Tally:
    """Totals of a job so far. brought, batches: sums over its iterations, in those it asked for."""

    running_s: float = 0.0
    iterations: int = 0
    iterations_s: float = 0.0
    batches: float = 0.0
    brought: float = 0.0
    restarts: int = 0


class ClusterSimulator:
    """One run of a workload; the same arguments give the same outcome.

    needs: (seconds, servers) that something else has from then on. losses: notes what jobs lose to
    each other.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        treatment: Treatment,
        *,
        needs: Iterable[tuple[float, int]] = (),
        losses: Losses | None = None,
    ) -> None:
        self._needs = needs
        self._losses = losses
        self._held: list[int] = []
        self._workload, self._policy, self._treatment = workload, policy, treatment
        self._topology = workload.topology
        self._engine = FlowSimulator(
            self._topology.rates_bps, treatment.rule, packets=self._topology.packets
        )
        self._free = self._topology.gpus_of.copy()
        self._up = np.ones(self._topology.servers, dtype=bool)
        self._waiting: dict[int, JobState] = {}
        self._running: dict[int, JobState] = {}
        self._runs: dict[int, _Run] = {}
        self._tallies: dict[int, _Tally] = {}
        self._now_s = 0.0
        self._outcome = Outcome(
            policy.name, treatment.name, workload.seed, self._topology.total_gpus
        )

    def run(self) -> Outcome:
        """Until every job is done. Raises MltcpError where the policy starves a job for good."""
        jobs = self._workload.jobs
        instants = iter(self._needs)
        instant = next(instants, None)
        arrived = 0
        round_at = math.inf
        while len(self._outcome.jobs) < len(jobs):
            arrival_s = jobs[arrived].arrival_s if arrived < len(jobs) else math.inf
            instant_s = instant[0] if instant else math.inf
            until_s = min(arrival_s, instant_s, round_at, _LAST_S)
            done = self._engine.run(until_s)
            self._now_s = self._engine.now
            if self._losses is not None:
                self._losses.note(self._engine, self._runs, self._workload)
            if done is not None:
                self._end(next(n for n, run in self._runs.items() if run.engine == done))
            elif until_s == _LAST_S:
                raise MltcpError(
                    f"The policy {self._policy.name} leaves"
                    f" {len(jobs) - len(self._outcome.jobs)} jobs waiting for ever."
                )
            elif until_s == arrival_s:
                while arrived < len(jobs) and jobs[arrived].arrival_s <= until_s:
                    self._arrive(arrived)
                    arrived += 1
            elif instant is not None and until_s == instant_s:
                self._lend(instant[1])
                instant = next(instants, None)
            self._outcome.makespan_s = self._now_s
            self._apply(self._policy.decide(self._view()))
            every_s = self._policy.round_s
            if every_s is not None:
                # A round that nobody waits for or runs in can be left out.
                busy = bool(self._waiting or self._running)
                round_at = (math.floor(self._now_s / every_s) + 1) * every_s if busy else math.inf
        return self._outcome

    def _view(self) -> View:
        waiting, running = (
            tuple(states[number] for number in sorted(states))
            for states in (self._waiting, self._running)
        )
        free = np.where(self._up, self._free, 0)
        return View(self._now_s, self._topology, free, waiting, running, self._done_share)

    def _done_share(self, state: JobState) -> float:
        run = self._runs.get(state.number)
        if run is None:
            return state.progress
        done = self._engine.stats(run.engine).done
        return state.progress + (1 - state.progress) * done / run.iterations

    def _arrive(self, number: int) -> None:
        job = self._workload.jobs[number]
        isolated_s = alone_s(job.model, job.gpus, self._topology)
        self._waiting[number] = JobState(number, job, isolated_s)
        self._tallies[number] = _Tally()

    def _end(self, number: int) -> None:
        state, tally = self._running[number], self._tallies[number]
        self._stop(number)
        del self._waiting[number]
        assert state.first_start_s is not None
        mean_s = tally.iterations_s / tally.iterations
        self._outcome.jobs.append(
            Done(
                state.job.name,
                state.job.model.name,
                state.job.gpus,
                state.job.arrival_s,
                state.first_start_s,
                self._now_s,
                tally.running_s,
                mean_s,
                mean_s / state.isolated_s,
                tally.restarts,
                tally.batches / tally.iterations,
                tally.brought / tally.iterations,
            )
        )

    def _apply(self, decision: Decision) -> None:
        for number, state in list(self._running.items()):
            if dict(decision.get(number, {})) != dict(state.allocation):
                self._stop(number)
        for number, allocation in decision.items():
            if number not in self._running:
                self._start(number, allocation)
        if self._treatment.time_shifts:
            self._plan_time_shifts()

    def _start(self, number: int, allocation: Allocation) -> None:
        state, job = self._waiting.pop(number), self._workload.jobs[number]
        for server, gpus in allocation.items():
            self._free[server] -= gpus
            if gpus < 1 or self._free[server] < 0 or not self._up[server]:
                raise MltcpError(
                    f"The policy {self._policy.name} gives {gpus} GPUs of server {server} to job"
                    f" {job.name}, which it doesn't have."
                )
        again = state.first_start_s is not None
        begun_s = self._now_s + (RESTART_S if again else 0.0)
        state.first_start_s = state.first_start_s if again else self._now_s
        state.allocation, state.started_s = dict(allocation), self._now_s
        self._tallies[number].restarts += again
        own = scaled(job.model, job.gpus, sum(allocation.values()), self._topology)
        iteration = iteration_of(own.model, self._topology, allocation, number)
        left = (1 - state.progress) * job.iterations / own.learning_rate
        iterations = max(1, math.ceil(left - 1e-6))
        engine = self._engine.add(
            FlowJob(
                iteration,
                iterations,
                begun_s,
                replace(job, model=own.model).compute_rows(),
                lag_s=lag_s(self._topology, allocation),
                seed=job.seed,
                flows=job.model.flows,
            )
        )
        self._runs[number] = _Run(engine, iteration, iterations, own)
        self._running[number] = state

    def _stop(self, number: int) -> None:
        """The job has no GPUs from now on; it waits, with what it did."""
        state, run = self._running.pop(number), self._runs.pop(number)
        stats = self._engine.stats(run.engine)
        self._engine.remove(run.engine)
        tally, held_s = self._tallies[number], self._now_s - state.started_s
        state.progress += (1 - state.progress) * stats.done / run.iterations
        tally.running_s += held_s
        tally.iterations += stats.done
        tally.iterations_s += stats.sum_s
        tally.batches += stats.done * run.scaled.batch
        tally.brought += stats.done * run.scaled.learning_rate
        self._outcome.used_gpu_s += held_s * sum(state.allocation.values())
        for server, gpus in state.allocation.items():
            self._free[server] += gpus
        state.allocation = {}
        self._waiting[number] = state

    def _plan_time_shifts(self) -> None:
        """Time shifts of the jobs that run now."""
        runs = [self._runs[number] for number in sorted(self._running)]
        planned = plan_time_shifts(self._topology, [run.own for run in runs])
        for place, run in enumerate(runs):
            slots = (0.0, 0.0, 0.0)
            if own := planned.get(place):
                # Slots count from time 0, so that a plan that stays moves no job.
                slots = own.period_s, own.first(0.0, self._now_s), REALIGN * own.period_s
            self._engine.time_shifts(run.engine, *slots)

    def _lend(self, count: int) -> None:
        """Inference is to have so many servers; those whose jobs lose least go first."""
        while len(self._held) > count:
            self._up[self._held.pop()] = True
        while len(self._held) < count:
            view = self._view()
            cost = getattr(self._policy, "reclaim_cost", reclaim_cost)
            left = [server for server in range(len(self._up)) if self._up[server]]
            server = min(left, key=lambda each: (cost(view, each), each))
            for number in [n for n, s in self._running.items() if server in s.allocation]:
                self._stop(number)
            self._up[server] = False
            self._held.append(server)
