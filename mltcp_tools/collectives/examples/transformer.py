# SPDX-License-Identifier: BSD-2-Clause
"""A small transformer that learns to predict the next token of counting sequences, by DDP.

torchrun --nproc-per-node 2 transformer.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import mltcp_tools.collectives as mc

STEPS, BATCH, LENGTH, TOKENS, WIDTH = 20, 16, 16, 32, 64


class Predictor(nn.Module):  # type: ignore[misc]
    """Two layers of attention over the tokens so far."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token at each place."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        found = self.layers(self.tokens(tokens) + self.places, mask=mask, is_causal=True)
        scores: torch.Tensor = self.head(found)
        return scores


def main() -> None:
    """Train, and say the loss."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Predictor())
    mc.enable(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    for step in range(STEPS):
        first = torch.randint(TOKENS, (BATCH, 1), generator=generator)
        text = (first + torch.arange(LENGTH + 1)) % TOKENS
        scores = model(text[:, :-1])
        loss = nn.functional.cross_entropy(scores.reshape(-1, TOKENS), text[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"parameters {sum(each.double().sum().item() for each in model.parameters()):.9f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
