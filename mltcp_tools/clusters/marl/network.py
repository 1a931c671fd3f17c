"""The agents' network: servers, then leaves, then the spine, and back; and one critic for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from mltcp_tools.clusters.marl.features import BIDS, GLOBAL, JOB, LEAF, SERVER, Observation

WIDTH = 32


def _mlp(inputs: int, outputs: int, width: int = WIDTH) -> Any:
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


class Agents(nn.Module):  # type: ignore[misc]
    """Every layer serves graphs of any size, so that what is learnt on 64 GPUs can be used on 256.

    A server's state is embedded and summed up to its leaf's (inside), leaves' are summed up to the
    spine's and that goes back to the leaves (the network); a leaf bids for the job in question.
    """

    def __init__(self) -> None:
        super().__init__()
        self.server = _mlp(SERVER, WIDTH)
        self.leaf = _mlp(WIDTH + LEAF, WIDTH)
        self.spine = _mlp(WIDTH + GLOBAL, WIDTH)
        self.job = _mlp(JOB + WIDTH, 1)
        self.wait = _mlp(WIDTH, 1)
        self.bid = _mlp(2 * WIDTH + JOB, BIDS)
        self.critic = _mlp(WIDTH + JOB, 1)
        # Begin as the shortest job first, anywhere, never waiting: better than at random.
        nn.init.constant_(self.wait[-1].bias, -3.0)
        nn.init.constant_(self.bid[-1].bias, 0.0)
        with torch.no_grad():
            self.bid[-1].bias[0] = 2.0
            self.bid[-1].weight.mul_(0.1)

    def forward(self, seen: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Logits of the dispatcher (batch, CANDIDATES + 1), state of leaves and value (batch,)."""
        inside = self.server(seen["servers"]).mean(dim=2)
        leaves = self.leaf(torch.cat([inside, seen["leaves"]], dim=-1))
        spine = self.spine(torch.cat([leaves.mean(dim=1), seen["whole"]], dim=-1))
        jobs = seen["jobs"]
        around = spine.unsqueeze(1).expand(-1, jobs.shape[1], -1)
        scores = self.job(torch.cat([jobs, around], dim=-1)).squeeze(-1)
        # The shortest job is the first; what is learnt adds to that.
        scores = scores - 2.0 * torch.arange(jobs.shape[1])
        scores = scores.masked_fill(~seen["possible"], -1e9)
        logits = torch.cat([scores, self.wait(spine)], dim=-1)
        pooled = (jobs * seen["possible"].unsqueeze(-1)).sum(dim=1)
        value = self.critic(torch.cat([spine, pooled], dim=-1)).squeeze(-1)
        state = torch.cat([leaves, spine.unsqueeze(1).expand(-1, leaves.shape[1], -1)], dim=-1)
        return logits, state, value

    def bids(self, state: Any, jobs: Any, choice: Any) -> Any:
        """Logits of each leaf's bid (batch, leaves, BIDS) for the job that was chosen."""
        padded = torch.cat([jobs, torch.zeros(jobs.shape[0], 1, jobs.shape[2])], dim=1)
        job = padded[torch.arange(len(choice)), choice]
        return self.bid(torch.cat([state, job.unsqueeze(1).expand(-1, state.shape[1], -1)], dim=-1))


def batch(observations: Sequence[Observation]) -> dict[str, Any]:
    """Tensors of the observations."""
    return {
        name: torch.from_numpy(np.stack([getattr(each, name) for each in observations]))
        for name in ("servers", "leaves", "jobs", "possible", "whole")
    }
