"""The agents' network: servers, then leaves, then the spine, and back; and one critic for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from mltcp_tools.clusters.marl.features import GLOBAL, LEAF, PAIR, SERVER, Observation

WIDTH = 32
CERTAIN = 3.0
"""Logit by which untrained agents prefer to let nobody share."""


def _mlp(inputs: int, outputs: int, width: int = WIDTH) -> Any:
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))


class Agents(nn.Module):  # type: ignore[misc]
    """Every layer serves graphs of any size, so that what is learnt on 32 GPUs can be used on 256.

    A server's state is embedded and averaged to its leaf's (inside), leaves' are averaged to the
    spine's, and that goes back to the leaves (the network). A leaf's agent scores each pair of its
    host and a candidate, and none.
    """

    def __init__(self) -> None:
        super().__init__()
        # Several threads wait for each other longer than layers this small take.
        torch.set_num_threads(1)
        self.server = _mlp(SERVER, WIDTH)
        self.leaf = _mlp(WIDTH + LEAF, WIDTH)
        self.spine = _mlp(WIDTH + GLOBAL, WIDTH)
        self.pair = _mlp(PAIR + 2 * WIDTH, 1)
        self.none = _mlp(2 * WIDTH, 1)
        self.critic = _mlp(WIDTH + GLOBAL, 1)
        with torch.no_grad():
            for last in (self.pair[-1], self.none[-1]):
                last.weight.mul_(0.1)
                last.bias.zero_()
            self.none[-1].bias += CERTAIN

    def forward(self, seen: dict[str, Any]) -> tuple[Any, Any]:
        """Logits of each leaf's candidates and of none (batch, leaves, LOOK + 1), and the value
        (batch,)."""
        inside = self.server(seen["servers"]).mean(dim=2)
        leaves = self.leaf(torch.cat([inside, seen["leaves"]], dim=-1))
        spine = self.spine(torch.cat([leaves.mean(dim=1), seen["whole"]], dim=-1))
        around = torch.cat([leaves, spine.unsqueeze(1).expand_as(leaves)], dim=-1)
        pairs = seen["pairs"]
        each = around.unsqueeze(2).expand(-1, -1, pairs.shape[2], -1)
        scores = self.pair(torch.cat([pairs, each], dim=-1)).squeeze(-1)
        scores = scores.masked_fill(~seen["present"], -1e9)
        logits = torch.cat([scores, self.none(around)], dim=-1)
        value = self.critic(torch.cat([spine, seen["whole"]], dim=-1)).squeeze(-1)
        return logits, value


def batch(observations: Sequence[Observation]) -> dict[str, Any]:
    """Tensors of the observations."""
    return {
        name: torch.from_numpy(np.stack([getattr(each, name) for each in observations]))
        for name in ("servers", "leaves", "pairs", "present", "whole")
    }
