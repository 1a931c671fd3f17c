# SPDX-License-Identifier: BSD-2-Clause
"""An experiment's jobs as the flow simulator has them: the same compute times, starts and bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from mltcp_tools.clusters.engine.library import FlowJob, FlowSimulator, Iteration, Rule
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.emulator.patterns import connection_of, connections
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.planning.network import FRAME, PAYLOAD
from mltcp_tools.lab.simulator.programs import program_of
from mltcp_tools.lab.simulator.variants import BASE_RTT_S


def flow_times(
    experiment: Experiment,
    tasks: Sequence[ClientTask],
    rule: Rule,
    repetition: int = 1,
    isolated_s: Mapping[str, float] | None = None,
) -> list[float]:
    """Iteration times, in seconds, of the jobs on the experiment's links by the flow simulator.

    isolated_s: of each job, the mean iteration alone; jobs on several links need it, as what steps
    of their patterns wait for each other is in there.
    """
    jobs = [
        flow_job(experiment, task, repetition, number, isolated_s or {})
        for number, task in enumerate(tasks)
    ]
    links = links_of(experiment)
    simulator = FlowSimulator(
        [link.rate * PAYLOAD for link in links],
        rule,
        packets=[
            (link.queue + (BASE_RTT_S + link.delay) * link.rate / 8) / FRAME for link in links
        ],
    )
    times: list[float] = []
    # An iteration of several bursts is as many of one burst.
    bursts = {simulator.add(job): task.spec.bursts for job, task in zip(jobs, tasks, strict=True)}
    for _ in jobs:
        done = simulator.run(1e9)
        assert done is not None
        stats = simulator.stats(done)
        times += [stats.mean_s * bursts[done]] * (stats.done // bursts[done])
        simulator.remove(done)
    return times


def links_of(experiment: Experiment) -> list[Link]:
    """Return the links that jobs send over, then the same the other way."""
    return [*(experiment.links.values() or [experiment.link])] * 2


def flow_job(
    experiment: Experiment,
    task: ClientTask,
    repetition: int,
    number: int,
    isolated_s: Mapping[str, float],
) -> FlowJob:
    spec, seed = task.spec, 1000 * repetition + number
    rows = np.array(list(compute_times(spec))) / spec.bursts
    crossed, flows = _crossed(experiment, repetition, task)
    links = links_of(experiment)
    size = max(crossed.values())
    lag = 0.0
    if task.name not in isolated_s:
        lag = lag_s(experiment, spec)
    else:
        sending_s = max(each * 8 / (links[n].rate * PAYLOAD) for n, each in crossed.items())
        lag = isolated_s[task.name] - spec.compute_s - sending_s
        # Where it sends while it computes, what it waits for is less than what it computes.
        rows, lag = rows + min(lag, 0.0), max(lag, 0.0)
    return FlowJob(
        Iteration(0.0, round(size), {link: each / size for link, each in crossed.items()}),
        iterations=len(rows) * spec.bursts,
        start_s=spec.start_delay_s,
        compute_s=np.repeat(rows, spec.bursts),
        lag_s=lag,
        seed=seed,
        flows=flows,
    )


def _crossed(
    experiment: Experiment, repetition: int, task: ClientTask
) -> tuple[dict[int, float], int]:
    """Bytes of a burst on each link, and the connections on the link that most are on."""
    spec, names = task.spec, list(experiment.links)
    program = program_of(experiment, repetition, task)
    if program is None:
        ahead = [names.index(name) for name in experiment.job(task.name).links] or [0]
        back = [max(1, len(names)) + number for number in ahead]
        ways = [ahead, back] if spec.direction == "both" else [ahead]
        size = spec.bytes_per_iteration / spec.bursts
        return {n: size for way in ways for n in way}, spec.flows
    used = dict(zip(connections(program.tasks), (ahead for ahead, _ in program.paths), strict=True))
    crossed: dict[int, float] = defaultdict(float)
    for step in program.tasks:
        if step.to is not None:
            for link in used[connection_of(step)]:
                crossed[link] += step.size
    on = Counter(link for path in used.values() for link in path)
    return dict(crossed), max(on.values())


def lag_s(experiment: Experiment, spec: JobSpec) -> float:
    """Seconds that a lone burst takes longer than its bytes: a round trip, and slow start.

    A flow begins with half of the window that fills the link and its queue, halved once for every
    timeout of idling (RFC 2861; the kernel's tcp_slow_start_after_idle), 10 segments at least, and
    doubles it every round trip.
    """
    link, flows = experiment.link, spec.flows
    rtt_s = BASE_RTT_S + link.delay
    packet_s = FRAME * 8 / link.rate
    full = (rtt_s / packet_s + link.queue / FRAME) / flows
    window = max(10.0, full / 2 / 2 ** int(spec.compute_s / (0.2 + rtt_s)))
    lost_s = 0.0
    while window * flows * packet_s < rtt_s:
        lost_s += rtt_s - window * flows * packet_s
        window *= 2
    return lost_s + rtt_s
