"""Gradients of embeddings (`sparse=True`): the rows that some rank has, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from mltcp_tools.collectives.library import How

if TYPE_CHECKING:
    from mltcp_tools.collectives.reducer import Reducer


def reduce_rows(reducer: Reducer, gradient: torch.Tensor) -> torch.Tensor:
    """The average of sparse tensors of equal shapes, which are sparse in their first dimension.

    Ranks tell each other which rows they have; the union's rows are reduced as a dense tensor.
    """
    own = gradient.coalesce()
    rows = own.indices()[0]
    union = torch.unique(_all_rows(reducer, rows))
    values = torch.zeros(
        union.numel(), *gradient.shape[1:], dtype=gradient.dtype, device=gradient.device
    )
    values[torch.searchsorted(union, rows)] = own.values()
    if union.numel():
        reducer.reduce_now(values, How.AVERAGE)
    return torch.sparse_coo_tensor(
        union.unsqueeze(0), values, gradient.shape, is_coalesced=True, check_invariants=False
    )


def _all_rows(reducer: Reducer, rows: torch.Tensor) -> torch.Tensor:
    """The numbers of the rows that each rank has, one after the other."""
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(reducer.world)]
    dist.all_gather(counts, torch.tensor([rows.numel()]), group=reducer.gloo)
    most = max(int(count) for count in counts)
    mine = torch.zeros(most, dtype=torch.int64)
    mine[: rows.numel()] = rows
    gathered = [torch.zeros(most, dtype=torch.int64) for _ in range(reducer.world)]
    if most:
        dist.all_gather(gathered, mine, group=reducer.gloo)
    parts = [part[: int(count)] for part, count in zip(gathered, counts, strict=True)]
    return torch.cat(parts)
