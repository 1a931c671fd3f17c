"""Collectives that send less: sums in the network, without what is zero, over the links there are.

import mltcp_tools.collectives as mc
model = DDP(model)
mc.enable(model)
"""

from __future__ import annotations

from typing import Any

__all__ = ["ALGORITHMS", "enable"]

ALGORITHMS = ("auto", "gloo", "aggregated", "sparse")
"""What `enable` can be asked for."""


def enable(model: Any, algorithm: str = "auto", **options: Any) -> Any:
    """Have a DistributedDataParallel model average its gradients by `algorithm`; see ddp.enable."""
    from mltcp_tools.collectives.ddp import enable as enable_ddp

    return enable_ddp(model, algorithm, **options)
