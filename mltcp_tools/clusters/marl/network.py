"""The agents' network: servers, then leaves, then the spine, and back; and one critic for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from mltcp_tools.clusters.marl.features import (
    BIDS,
    GLOBAL,
    JOB,
    LEAF,
    SERVER,
    USUAL,
    WEIGHTS,
    Observation,
)

WIDTH = 32
CERTAIN = 3.0
"""Logit by which untrained agents prefer what is usual: they begin as plan.py without weights."""


def _mlp(inputs: int, outputs: int, width: int = WIDTH) -> Any:
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


class Agents(nn.Module):  # type: ignore[misc]
    """Every layer serves graphs of any size, so that what is learnt on 64 GPUs can be used on 256.

    A server's state is embedded and averaged to its leaf's (inside), leaves' are averaged to the
    spine's and that goes back to the leaves and to the jobs (the network).
    """

    def __init__(self) -> None:
        super().__init__()
        # Several threads wait for each other longer than layers this small take.
        torch.set_num_threads(1)
        self.server = _mlp(SERVER, WIDTH)
        self.leaf = _mlp(WIDTH + LEAF, WIDTH)
        self.spine = _mlp(WIDTH + JOB + GLOBAL, WIDTH)
        self.job = _mlp(JOB + WIDTH, len(WEIGHTS))
        self.bid = _mlp(2 * WIDTH, BIDS)
        self.critic = _mlp(WIDTH + JOB + GLOBAL, 1)
        with torch.no_grad():
            for last, usual in ((self.job[-1], USUAL), (self.bid[-1], 0)):
                last.weight.mul_(0.1)
                last.bias.zero_()
                last.bias[usual] = CERTAIN

    def forward(self, seen: dict[str, Any]) -> tuple[Any, Any, Any]:
        """Logits of jobs' weights (batch, CANDIDATES, WEIGHTS) and of leaves' bids (batch, leaves,
        BIDS), and the value (batch,)."""
        inside = self.server(seen["servers"]).mean(dim=2)
        leaves = self.leaf(torch.cat([inside, seen["leaves"]], dim=-1))
        jobs, present = seen["jobs"], seen["present"].unsqueeze(-1)
        pooled = (jobs * present).sum(dim=1) / 8
        spine = self.spine(torch.cat([leaves.mean(dim=1), pooled, seen["whole"]], dim=-1))
        around = spine.unsqueeze(1)
        weights = self.job(torch.cat([jobs, around.expand(-1, jobs.shape[1], -1)], dim=-1))
        bids = self.bid(torch.cat([leaves, around.expand(-1, leaves.shape[1], -1)], dim=-1))
        value = self.critic(torch.cat([spine, pooled, seen["whole"]], dim=-1)).squeeze(-1)
        return weights, bids, value


def batch(observations: Sequence[Observation]) -> dict[str, Any]:
    """Tensors of the observations."""
    return {
        name: torch.from_numpy(np.stack([getattr(each, name) for each in observations]))
        for name in ("servers", "leaves", "jobs", "present", "whole")
    }
