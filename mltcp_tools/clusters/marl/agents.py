# SPDX-License-Identifier: BSD-2-Clause
"""The agents: what they are asked, what they see, their network, and the policy that they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from mltcp_tools.clusters.interference import PairModel
from mltcp_tools.clusters.policies.plan import ROUND_S
from mltcp_tools.clusters.policies.sharing import LOOK, Settled, settle
from mltcp_tools.clusters.view import Decision, JobState, Shared, View
from mltcp_tools.clusters.workload import Workload

LEAF, PAIR, WIDTH = 4, 8, 32
CERTAIN = 3.0
"""Logit by which untrained agents prefer to let nobody share."""


Question = tuple[JobState, list[JobState]]
"""A leaf's host without a guest, and who may be one."""


class Meeting:
    """The leaves' agents settle one decision: in each slot, every leaf with a host that has no
    guest names one of its candidates or declines; where two name the same, the pair that is
    predicted to do more together gets it, and the other leaf is asked again."""

    def __init__(self, view: View, predicted: PairModel, scale_s: float) -> None:
        self.settled: Settled = settle(view)
        self._view, self._predicted, self._scale_s = view, predicted, scale_s
        self._declined: set[int] = set()
        self.asked = self._ask()

    def _ask(self) -> dict[int, Question]:
        asked: dict[int, Question] = {}
        for host in self.settled.open:
            (server,) = self.settled.decided[host.number]
            leaf = self._view.topology.leaf_of(server)
            if leaf not in asked and host.number not in self._declined:
                guests = self.settled.guests(host)
                if guests:
                    asked[leaf] = host, guests
        return asked

    def answer(self, picks: Any) -> Any:
        """picks: of each leaf, the place of the candidate it names; LOOK, or any beyond its
        candidates, declines. Returned, for each: what its new pair is predicted to do more than its
        host alone, in speeds."""
        named: dict[int, tuple[float, int, JobState, JobState]] = {}
        for leaf, (host, guests) in self.asked.items():
            if picks[leaf] >= len(guests):
                self._declined.add(host.number)
                continue
            guest = guests[picks[leaf]]
            slow = self._predicted.slowdowns(host, guest)
            more = 1 / slow[0] + 1 / slow[1] - 1
            if guest.number not in named or named[guest.number][0] < more:
                named[guest.number] = more, leaf, host, guest
        gains = np.zeros(self._view.topology.leaves)
        for more, leaf, host, guest in named.values():
            self.settled.pair(host, guest)
            gains[leaf] = more
        self.asked = self._ask()
        return gains

    def seen(self) -> dict[str, Any]:
        """leaves: shape (leaves, LEAF), the state of each. pairs: (leaves, LOOK, PAIR), each leaf's
        host with everyone who may be its guest. present: (leaves, LOOK), which of those are
        jobs."""
        topology, settled = self._view.topology, self.settled
        used, shared = np.zeros((2, topology.leaves))
        for allocation in settled.decided.values():
            held = shared if isinstance(allocation, Shared) else used
            for server, gpus in allocation.items():
                held[topology.leaf_of(server)] += gpus / topology.gpus / topology.leaf
        queued, hosts = (
            np.full_like(used, np.log1p(len(each) / topology.total_gpus))
            for each in (settled.queue, settled.open)
        )
        leaves = np.stack([used, shared, queued, hosts], axis=1)
        pairs = np.zeros((topology.leaves, LOOK, PAIR))
        present = np.zeros((topology.leaves, LOOK), dtype=bool)
        for leaf, (host, guests) in self.asked.items():
            for place, guest in enumerate(guests):
                present[leaf, place] = True
                pairs[leaf, place] = self._pair(host, guest, place)
        return {
            "leaves": torch.from_numpy(leaves).float(),
            "pairs": torch.from_numpy(pairs).float(),
            "present": torch.from_numpy(present),
        }

    def _pair(self, host: JobState, guest: JobState, place: int) -> tuple[float, ...]:
        slow, its_slow = self._predicted.slowdowns(host, guest)
        mine, its = (max(1.0, self.settled.left_s[each.number]) for each in (host, guest))
        return (
            1 / slow,
            1 / its_slow,
            1 / slow + 1 / its_slow - 1,
            float(np.log1p(mine / self._scale_s)),
            float(np.log1p(its / self._scale_s)),
            float(np.clip(np.log(its / mine), -3, 3)),
            float(np.log1p((self._view.now_s - guest.job.arrival_s) / self._scale_s)),
            place / LOOK,
        )


def _mlp(inputs: int) -> Any:
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))


class Agents(nn.Module):  # type: ignore[misc]
    """Serves clusters of any size: a leaf's agent scores each pair of its host and a candidate, and
    none, by its leaf's state; the critic goes by the mean of all leaves'."""

    def __init__(self) -> None:
        super().__init__()
        # Several threads wait for each other longer than layers this small take.
        torch.set_num_threads(1)
        self.pair, self.none, self.critic = _mlp(PAIR + LEAF), _mlp(LEAF), _mlp(LEAF)
        with torch.no_grad():
            for last in (self.pair[-1], self.none[-1]):
                last.weight.mul_(0.1)
                last.bias.zero_()
            self.none[-1].bias += CERTAIN

    def forward(self, seen: dict[str, Any]) -> tuple[Any, Any]:
        """Logits of each leaf's candidates and of none (batch, leaves, LOOK + 1), and the value
        (batch,)."""
        leaves, pairs = seen["leaves"], seen["pairs"]
        around = leaves.unsqueeze(2).expand(-1, -1, pairs.shape[2], -1)
        scores = self.pair(torch.cat([pairs, around], dim=-1)).squeeze(-1)
        scores = scores.masked_fill(~seen["present"], -1e9)
        value = self.critic(leaves.mean(dim=1)).squeeze(-1)
        return torch.cat([scores, self.none(leaves)], dim=-1), value


@dataclass
class Step:
    """A slot of a Meeting. seen: what the agents saw. picks, logs, gains: of each leaf, its pick,
    the logarithm of its probability, and the new pair's gain. value: the critic's. shared: the
    reward of all, minus the time that jobs spend until the next decision over all their lone
    time."""

    seen: dict[str, Any]
    picks: Any
    logs: Any
    value: float
    gains: Any
    shared: float = 0.0


class Marl:
    """The agents as a scheduling policy: their likeliest actions; or, with a generator, drawn ones,
    whose steps are kept."""

    name = "marl"
    round_s: float | None = ROUND_S

    def __init__(
        self, agents: Agents, predicted: PairModel, workload: Workload, generator: Any = None
    ) -> None:
        self._agents, self._predicted, self._generator = agents, predicted, generator
        work_s = [job.iterations * job.model.compute_s for job in workload.jobs]
        self._scale_s, self._all_s = float(np.mean(work_s)), float(np.sum(work_s))
        self._before = 0.0, 0
        self.steps: list[Step] = []

    def decide(self, view: View) -> Decision:
        """Return the jobs that run, and those that share."""
        since_s, under_way = self._before
        if self.steps:
            self.steps[-1].shared -= under_way * (view.now_s - since_s) / self._all_s
        self._before = view.now_s, len(view.running) + len(view.waiting)
        meeting = Meeting(view, self._predicted, self._scale_s)
        while meeting.asked:
            seen = meeting.seen()
            with torch.no_grad():
                logits, value = self._agents({name: each[None] for name, each in seen.items()})
                picks = self._pick(logits[0])
                logs = log_of(logits[0], picks)
            gains = meeting.answer(picks.numpy())
            if self._generator is not None:
                self.steps.append(Step(seen, picks, logs, float(value[0]), gains))
        return meeting.settled.decided

    def _pick(self, logits: Any) -> Any:
        if self._generator is None:
            return logits.argmax(dim=-1)
        return torch.multinomial(logits.softmax(-1), 1, generator=self._generator).squeeze(-1)


def log_of(logits: Any, picks: Any) -> Any:
    """The logarithms of the picks' probabilities."""
    return torch.log_softmax(logits, dim=-1).gather(-1, picks.unsqueeze(-1)).squeeze(-1)
