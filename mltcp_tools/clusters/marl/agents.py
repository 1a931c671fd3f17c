# SPDX-License-Identifier: BSD-2-Clause
"""The schedulers: their view of the cluster, their networks, and the policy that they are.

A job arrives at one scheduler. For each of its servers, the scheduler picks one of its own leaf, or
passes the job to the scheduler of another leaf. Graph networks encode the servers first (GPUs
around a NIC), and then the network between them. The order of jobs is that of `fifo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from mltcp_tools.clusters.marl.interference import Interference, Shares, shares
from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.orders import start_in_order
from mltcp_tools.clusters.policies.placing import place, shape, shuffled
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.view import Decision, Ints, JobState, View
from mltcp_tools.clusters.workload import Workload, placed_s

Bools = npt.NDArray[np.bool_]
GPU, SERVER, LINK, JOB, WIDTH = 5, 2, 3, 6, 32
"""Features of a GPU, a server, a direction of a link, and a job; width of an embedding."""
CANDIDATES = 7
"""Random places among which `predicted` chooses, besides that of `fifo`."""
HOPS = 3
"""Rounds of messages: from a server to its leaf, to a spine, and to another leaf."""
USUAL = 3.0
"""Logit of the choice that leads where `fifo` places the job: networks learn where to deviate."""


class Graph:
    """A topology as tensors: servers are the first nodes, then switches; an edge is a direction of
    a link. leaf: of each server."""

    def __init__(self, topology: Topology) -> None:
        names = {server.name: n for n, server in enumerate(topology.machines)}
        edges, links = [], []
        for number, link in enumerate(topology.network.links.values()):
            if link.ends is not None:
                a, b = (names.setdefault(end, len(names)) for end in link.ends)
                edges += [(a, b), (b, a)]
                links += [2 * number, 2 * number + 1]
        self.source, self.target = torch.tensor(edges).T
        self.links = np.array(links)
        self.nodes = len(names)
        self.leaf = torch.from_numpy(topology.leaf_index)
        rates = np.array(topology.rates_bps)[self.links]
        self.rates = rates / rates.max()


def _mean(values: torch.Tensor, groups: torch.Tensor, count: int) -> torch.Tensor:
    """Means over the second dimension by group; shape (batch, count, width)."""
    total = torch.zeros(len(values), count, values.shape[2]).index_add(1, groups, values)
    return total / torch.bincount(groups, minlength=count).clamp(min=1)[None, :, None]


class Agents(nn.Module):  # type: ignore[misc]
    """The networks that all schedulers share; they serve clusters of any size."""

    def __init__(self) -> None:
        super().__init__()
        # Several threads wait for each other longer than layers this small take.
        torch.set_num_threads(1)
        self.gpu, self.nic = nn.Linear(GPU, WIDTH), nn.Linear(WIDTH + SERVER, WIDTH)
        self.job = nn.Linear(JOB, WIDTH)
        self.switch = nn.Parameter(torch.zeros(WIDTH))
        self.message = nn.ModuleList(nn.Linear(WIDTH + LINK, WIDTH) for _ in range(HOPS))
        self.update = nn.ModuleList(nn.Linear(3 * WIDTH, WIDTH) for _ in range(HOPS))
        self.own, self.passed = (
            nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
            for _ in range(2)
        )
        self.critic = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
        for score in (self.own, self.passed):
            nn.init.zeros_(score[-1].weight)
            nn.init.zeros_(score[-1].bias)

    def forward(
        self, graph: Graph, seen: dict[str, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of one's own servers and of other schedulers, shape (batch, servers + leaves), and
        values, (batch,). seen: see `Marl`."""
        inside = torch.tanh(self.gpu(seen["gpus"])).mean(dim=2)
        servers = torch.tanh(self.nic(torch.cat([inside, seen["servers"]], dim=-1)))
        batch, count = servers.shape[:2]
        switches = self.switch.expand(batch, graph.nodes - count, WIDTH)
        nodes = torch.cat([servers, switches], dim=1)
        job = torch.tanh(self.job(seen["job"]))
        around = job[:, None].expand(-1, graph.nodes, -1)
        for message, update in zip(self.message, self.update, strict=True):
            sent = torch.cat([nodes[:, graph.source], seen["links"]], dim=-1)
            heard = _mean(torch.tanh(message(sent)), graph.target, graph.nodes)
            nodes = nodes + torch.tanh(update(torch.cat([nodes, heard, around], dim=-1)))
        leaves = _mean(nodes[:, :count], graph.leaf, int(graph.leaf.max()) + 1)
        me = torch.cat([leaves[torch.arange(batch), seen["at"]], job], dim=-1)[:, None]
        scores = [
            score(torch.cat([each, me.expand(-1, each.shape[1], -1)], dim=-1)).squeeze(-1)
            for score, each in ((self.own, nodes[:, :count]), (self.passed, leaves))
        ]
        logits = torch.cat(scores, dim=1) + USUAL * seen["usual"]
        logits = logits.masked_fill(~seen["possible"], -1e9)
        # Errors of values are large, and would drown what the choices teach the embeddings.
        around = torch.cat([nodes.mean(dim=1), job], dim=-1).detach()
        value = self.critic(around).squeeze(-1)
        return logits, value


@dataclass
class Step:
    """A choice. action: a server, or the number of servers plus a leaf to pass the job to. log: the
    logarithm of its probability. value: the critic's."""

    seen: dict[str, torch.Tensor]
    action: int
    log: float
    value: float
    reward: float = 0.0


@dataclass
class Placed:
    """A job at its place. left_s: its remaining time alone."""

    allocation: Allocation
    shares: Shares
    left_s: float


class Marl:
    """The schedulers as a policy: their likeliest choices; with a generator, drawn ones, whose
    steps are kept.

    The reward of a placement is the time by which the interference model says that it delays its
    job and the others less than that of `fifo` would, in mean lengths of jobs. The time that jobs
    wait is left out: it is 20 times as much, and depends little on where they run.
    """

    name = "marl"
    round_s: float | None = None

    def __init__(
        self,
        agents: Agents,
        interference: Interference,
        workload: Workload,
        generator: torch.Generator | None = None,
    ) -> None:
        self._agents, self._interference = agents, interference
        self._generator = generator
        self._topology, self.graph = workload.topology, Graph(workload.topology)
        self._leaf = self._topology.leaf_index
        work_s = [job.model.compute_s * job.iterations for job in workload.jobs]
        self._scale_s = float(np.mean(work_s))
        self._placed: dict[int, Placed] = {}
        self.steps: list[Step] = []

    def decide(self, view: View) -> Decision:
        """The running jobs stay; waiting ones start in the order of `fifo`."""
        self._placed = {each.number: self._at(view, each, each.allocation) for each in view.running}
        decided = start_in_order(view, view.free.copy(), view.waiting, self._place)
        return {state.number: state.allocation for state in view.running} | decided

    def _at(self, view: View, state: JobState, allocation: Allocation) -> Placed:
        old = self._placed.get(state.number)
        if old is None or old.allocation != allocation:
            own = shares(self._topology, state.job, allocation, state.number)
        else:
            own = old.shares
        return Placed(allocation, own, view.remaining_s(state))

    def _place(self, view: View, free: Ints, state: JobState) -> Allocation:
        """Servers for each part of the job, the largest first; none where they aren't free."""
        parts = sorted(shape(state.job, self._topology).elements(), reverse=True)
        usual = place(view, free, state)
        if not usual or sorted(usual.values(), reverse=True) != parts:
            return usual  # nothing is free, or servers differ and none have this shape
        found: dict[int, int] = {}
        at, servers = state.number % self._topology.leaves, len(free)
        for gpus in parts:
            holds = free >= gpus
            holds[list(found)] = False
            others = np.bincount(self._leaf, holds, self._topology.leaves) > 0
            action = servers
            while action >= servers:
                others[at] = False
                possible = np.concatenate([holds & (self._leaf == at), others])
                action = int(possible.argmax())
                if possible.sum() > 1:
                    seen = self._seen(view, state, found, gpus, holds) | {
                        "at": torch.tensor(at),
                        "possible": torch.from_numpy(possible),
                    }
                    left = [s for s, count in usual.items() if count == gpus and holds[s]]
                    seen["usual"] = torch.zeros(len(possible))
                    if left:
                        seen["usual"][self._toward(left, at)] = 1.0
                    action = self._choose(seen)
                at = action - servers if action >= servers else at
            found[action] = gpus
        self._settle(view, state, found, usual)
        return found

    def _toward(self, servers: Sequence[int], at: int) -> int:
        """The choice that leads to one of the servers, those of one's own leaf first."""
        server = min(servers, key=lambda each: (self._leaf[each] != at, each))
        return server if self._leaf[server] == at else len(self._leaf) + int(self._leaf[server])

    def _choose(self, seen: dict[str, torch.Tensor]) -> int:
        with torch.no_grad():
            logits, value = self._agents(self.graph, {n: each[None] for n, each in seen.items()})
            logs = torch.log_softmax(logits[0], dim=-1)
        if self._generator is None:
            return int(logs.argmax())
        action = int(torch.multinomial(logs.exp(), 1, generator=self._generator))
        self.steps.append(Step(seen, action, float(logs[action]), float(value[0])))
        return action

    def _seen(
        self, view: View, state: JobState, found: Allocation, gpus: int, holds: Bools
    ) -> dict[str, torch.Tensor]:
        """gpus: shape (servers, GPUs of one, GPU): whether it exists and is free; the largest share
        and the remaining time of its job; and whether this is the one to place. servers: (servers,
        SERVER): whether the part fits, and the place in the list, as `fifo` takes the first of
        equals. links: (edges, LINK): busy share, jobs, and rate. job: (JOB,)."""
        topology, scale_s = self._topology, self._scale_s
        inside = np.zeros((topology.servers, topology.gpus, GPU))
        inside[np.arange(topology.gpus) < topology.gpus_of[:, None], :2] = 1
        used = np.zeros(topology.servers, dtype=np.int64)
        rows = [np.zeros(len(topology.rates_bps)), *(each.shares for each in self._placed.values())]
        placed = [
            (each.allocation, (0, each.shares.max(), np.log1p(each.left_s / scale_s), 0))
            for each in self._placed.values()
        ]
        for allocation, features in [*placed, (found, (0, 0, 0, 1))]:
            for server, count in allocation.items():
                inside[server, used[server] : used[server] + count, 1:] = features
                used[server] += count
        links = [np.sum(rows, axis=0), np.count_nonzero(rows, axis=0) / 4]
        parts = shape(state.job, topology).total()
        job = (
            gpus / topology.gpus,
            (parts - len(found)) / topology.servers,
            len(found) / parts,
            1 - state.job.model.compute_s / state.isolated_s,
            np.log1p(view.remaining_s(state) / scale_s),
            np.log1p(len(view.waiting)) / 4,
        )
        seen = {
            "gpus": inside,
            "servers": np.stack([holds, np.linspace(0, 1, len(holds))], axis=1),
            "links": np.stack([*(each[self.graph.links] for each in links), self.graph.rates], 1),
            "job": np.array(job),
        }
        return {name: torch.from_numpy(each).float() for name, each in seen.items()}

    def _settle(self, view: View, state: JobState, found: Allocation, usual: Allocation) -> None:
        """Note the placement, and reward it by the delays that it is predicted to spare."""
        if self.steps:
            spared_s = self._delays_s(view, state, usual) - self._delays_s(view, state, found)
            self.steps[-1].reward += spared_s / self._scale_s
        self._placed[state.number] = self._at(view, state, found)

    def _delays_s(self, view: View, state: JobState, found: Allocation) -> float:
        """Seconds by which the job is predicted to delay the others and itself there."""
        others = list(self._placed.values())
        new = self._at(view, state, found)
        before, after = (
            self._interference.slowdowns([each.shares for each in jobs])
            for jobs in (others, [*others, new])
        )
        alone = placed_s(state.job.model, found, self._topology) / state.isolated_s
        late_s = ((after[:-1] - before) * [each.left_s for each in others]).sum()
        return float(late_s + (after[-1] * alone - 1) * new.left_s)


class Predicted(Marl):
    """The rival that learns nothing: of the place of `fifo` and of random ones, that at which the
    interference model predicts the least delay."""

    name = "predicted"

    def _place(self, view: View, free: Ints, state: JobState) -> Allocation:
        places = (place, *(shuffled(number) for number in range(CANDIDATES)))
        found = [each(view, free, state) for each in places]
        if not found[0]:
            return {}
        best = min(filter(None, found), key=lambda each: self._delays_s(view, state, each))
        self._placed[state.number] = self._at(view, state, best)
        return best
