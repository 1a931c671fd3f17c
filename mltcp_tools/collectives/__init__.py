# SPDX-License-Identifier: BSD-2-Clause
"""Collectives that send less: sums in the network, without what is zero, over the links there are.

import mltcp_tools.collectives as mc
model = DDP(model)
mc.enable(model)
"""

from __future__ import annotations

import importlib.util
from typing import Any

from mltcp_tools.base.errors import HostError
from mltcp_tools.base.installation import how_to_bring

__all__ = ["PACKAGES", "enable", "require_packages"]

PACKAGES = ("torch", "highspy")
"""The needs of reducing beside mltcp-tools itself: its extra `collectives`."""


def require_packages() -> None:
    """Raise HostError where one of PACKAGES isn't installed."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise HostError(f"Collectives need {' and '.join(missing)}; {how_to_bring('collectives')}.")


def enable(model: Any, algorithm: str = "auto", **options: Any) -> Any:
    """Have a DistributedDataParallel model average its gradients by `algorithm`; see ddp.enable."""
    require_packages()
    from mltcp_tools.collectives.ddp import enable as enable_ddp

    return enable_ddp(model, algorithm, **options)
