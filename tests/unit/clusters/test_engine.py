# SPDX-License-Identifier: BSD-2-Clause
"""The flow simulator: shares that can be worked out by hand, and rounds that are skipped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mltcp_tools.clusters.engine.library import FlowJob, FlowSimulator, Iteration, Rule, Stats
from mltcp_tools.clusters.rules import FAIR, RENO

GBIT = 1e9
F = Rule("mltcp", intercept=0.25, slope=1.75, levels=16)


def job(
    compute_s: float,
    size: int,
    links: dict[int, float],
    *,
    iterations: int = 20,
    **fields: float | int,
) -> FlowJob:
    """A job with one burst over the links."""
    return FlowJob(Iteration(compute_s, size, links), iterations, **fields)  # type: ignore[arg-type]


def finished(simulator: FlowSimulator, count: int) -> dict[int, tuple[float, Stats]]:
    """Job -> when it was done, and its statistics, of `count` jobs that end."""
    ends = {}
    for _ in range(count):
        done = simulator.run(1e9)
        assert done is not None
        ends[done] = simulator.now, simulator.stats(done)
        simulator.remove(done)
    return ends


def test_mltcp_separates_bursts_that_fit_next_to_each_other() -> None:
    simulator = FlowSimulator([GBIT], F)
    late = {"start_s": 0.02}
    for fields in ({}, late):
        simulator.add(job(0.15, 12_500_000, {0: 1.0}, iterations=200, **fields))
    assert simulator.run(0.5) is None
    firsts = [simulator.stats(number) for number in (0, 1)]
    assert all(each.done == 1 and each.sum_s > 0.26 for each in firsts)
    assert simulator.run(35.0) is None
    before = [simulator.stats(number) for number in (0, 1)]
    assert simulator.run(40.0) is None
    for number, old in enumerate(before):
        new = simulator.stats(number)
        assert (new.sum_s - old.sum_s) / (new.done - old.done) == pytest.approx(0.25)


def test_a_job_with_time_shifts_waits_for_them() -> None:
    simulator = FlowSimulator([GBIT], FAIR)
    for due_s in (0.1, 0.2):
        number = simulator.add(job(0.1, 12_500_000, {0: 1.0}))
        simulator.time_shifts(number, 0.25, due_s, 0.01)
    # The first bursts collide until 0.3 s; the next slots are at 0.45 and 0.6 s.
    for count in range(1, 18):
        for number, end_s in ((1, 0.3), (0, 0.45)):
            for at_s, done in ((-1e-6, count), (1e-6, count + 1)):
                assert simulator.run(end_s + 0.25 * count + at_s) is None
                assert simulator.stats(number).done == done


def random_jobs(seed: int, links: int) -> list[FlowJob]:
    """Jobs of a few kinds over some links, the last of them over a link of its own."""
    draw = np.random.default_rng(seed)
    jobs = []
    for number in range(12):
        kind = int(draw.integers(4))
        crossings = {int(each): 1.0 for each in draw.choice(links, 2, replace=False)}
        if number == 11:
            crossings = {links: 1.0}
        size = [5_000_000, 12_500_000, 20_000_000, 8_000_000][kind]
        compute = [0.3, 0.25, 0.4, 0.12][kind]
        rows = None
        if kind == 2:
            rows = np.array([0.4, 0.42, 0.39])
        jobs.append(
            FlowJob(
                Iteration(compute, size, crossings),
                int(draw.integers(200, 2000)),
                start_s=round(float(draw.uniform(0, 40)), 3),
                compute_s=rows,
                seed=number,
            )
        )
    return jobs


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", [FAIR, F, RENO], ids=lambda rule: rule.name)
def test_looking_at_jobs_changes_nothing(seed: int, rule: Rule) -> None:
    """To the nanosecond and the iteration, with jobs that leave."""
    found = []
    for step_s in (0.0, 7.7):
        simulator = FlowSimulator([GBIT] * 5, rule, packets=[200.0] * 5)
        numbers = [simulator.add(each) for each in random_jobs(seed, 4)]
        for number in numbers[4::5]:
            simulator.time_shifts(number, 0.6, 0.0, 0.03)
        for until_s in (*np.arange(7.0, 130.0, step_s or 130.0), 130.0):
            assert simulator.run(until_s) is None
            assert simulator.stats(numbers[0]).done < 2000
        simulator.remove(numbers.pop(5))
        story: list[object] = []
        while numbers:
            done = simulator.run(simulator.now + step_s if step_s else 1e8)
            if done is not None:
                story.append((done, simulator.now, simulator.stats(done)))
                story.append([simulator.stats(number) for number in numbers])
                simulator.remove(done)
                numbers.remove(done)
        found.append(story)
    assert found[0] == found[1]


def strewn_jobs(seed: int, links: int) -> list[FlowJob]:
    """Jobs that each cross many of the links, some of them more than once, so that all contend."""
    draw = np.random.default_rng(seed)
    jobs = []
    for number in range(24):
        crossed = draw.choice(links, int(draw.integers(2, links // 3)), replace=False)
        crossings = {int(each): float(draw.integers(1, 4)) for each in crossed}
        own = Iteration(0.05 * float(draw.uniform(0.5, 2)), 4_000_000, crossings)
        jobs.append(FlowJob(own, 30, start_s=float(draw.uniform(0, 0.2)), seed=number))
    return jobs


def naive_ends(jobs: list[FlowJob], rates: list[float]) -> list[float]:
    """Return when each job ends that sends one burst: links are filled from nothing at every
    event.
    """
    left = [float(each.iteration.size) for each in jobs]
    begins = [each.start_s + each.iteration.compute_s for each in jobs]
    ends = [0.0] * len(jobs)
    now = 0.0
    while any(left):
        sending = [n for n in range(len(jobs)) if left[n] and begins[n] <= now]
        speed = naive_shares(jobs, rates, sending)
        done = [(now + left[n] / speed[n], n) for n in sending]
        following = min([at for at, _ in done] + [at for at in begins if at > now])
        for at, number in done:
            left[number] -= speed[number] * (following - now)
            if at <= following:
                left[number], ends[number] = 0.0, at
        now = following
    return ends


def naive_shares(jobs: list[FlowJob], rates: list[float], sending: list[int]) -> dict[int, float]:
    """Bytes per second: all that send speed up until a link is full; its jobs stop there."""
    room = [rate / 8 for rate in rates]
    speed: dict[int, float] = {}
    while len(speed) < len(sending):
        asked = [0.0] * len(rates)
        for number in sending:
            for link, times in jobs[number].iteration.crossings.items():
                asked[link] += times * (number not in speed)
        levels = [room[link] / each if each else np.inf for link, each in enumerate(asked)]
        full = int(np.argmin(levels))
        for number in sending:
            if number in speed or full not in jobs[number].iteration.crossings:
                continue
            speed[number] = levels[full]
            for link, times in jobs[number].iteration.crossings.items():
                room[link] -= times * speed[number]
    return speed


@pytest.mark.parametrize("seed", range(12))
def test_shares_are_those_of_a_naive_filling(seed: int) -> None:
    rates = [GBIT * each for each in np.random.default_rng(seed).choice([1.0, 2.0, 2.5], 12)]
    jobs = [replace(each, iterations=1) for each in strewn_jobs(seed, 12)]
    simulator = FlowSimulator(rates, FAIR)
    numbers = [simulator.add(each) for each in jobs]
    ends = finished(simulator, len(jobs))
    assert [ends[number][0] for number in numbers] == pytest.approx(
        naive_ends(jobs, rates), abs=1e-6
    )


def test_jobs_that_meet_nobody_take_as_long_as_alone() -> None:
    simulator = FlowSimulator([GBIT, GBIT], F)
    simulator.add(job(0.5, 12_500_000, {0: 1.0}, iterations=20_000))
    simulator.add(job(0.3, 12_500_000, {1: 1.0}, iterations=20_000, start_s=1.0))
    ends = sorted(end for end, _ in finished(simulator, 2).values())
    assert ends == pytest.approx([1 + 20_000 * 0.4, 20_000 * 0.6])


def test_the_same_seed_gives_the_same_and_another_does_not() -> None:
    def end(seed: int) -> float:
        simulator = FlowSimulator([GBIT], RENO)
        for number in range(3):
            simulator.add(job(0.1, 12_500_000, {0: 1.0}, seed=seed + number))
        return max(end for end, _ in finished(simulator, 3).values())

    assert end(1) == end(1)
    assert end(1) != end(100)


def test_steps_of_progress_that_are_no_whole_bytes_end() -> None:
    simulator = FlowSimulator([4e6, 4e6], F)
    for links in ({0: 3.0}, {0: 1.0, 1: 7.0}):
        simulator.add(job(0.01, 1_000_003, links, iterations=3))
    assert len(finished(simulator, 2)) == 2


@pytest.mark.parametrize(("lasting", "constant"), [(64, True), (1, False)])
def test_luck_holds_for_as_many_bursts_as_it_lasts(lasting: int, constant: bool) -> None:
    simulator = FlowSimulator([GBIT], Rule(luck=1.0, lasting=lasting))
    for seed in (1, 2):
        simulator.add(job(0.0, 1_000_000, {0: 1.0}, seed=seed, iterations=60))
    took, before = [], Stats(0, 0.0)
    while simulator.run(simulator.now + 0.001) is None:
        now = simulator.stats(0)
        if now.done > before.done:
            took.append((now.sum_s - before.sum_s) / (now.done - before.done))
            before = now
    assert len(took) > 20
    assert (float(np.ptp(took)) < 1e-6) == constant
