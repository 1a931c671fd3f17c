# SPDX-License-Identifier: BSD-2-Clause
"""Collectives at an aggregator, a host or switch that sums up what all ranks send it."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from mltcp_tools.collectives.bounds import Rates, aggregated_bound_s
from mltcp_tools.collectives.collective import Collective, Setting, Sum
from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.session import Session, SessionError

if TYPE_CHECKING:
    import torch

    from mltcp_tools.collectives.sums import Sums


class Aggregated(Collective):
    """Sums at an aggregator, without what is zero everywhere (SwitchML, OmniReduce)."""

    name = "aggregated"
    at_aggregator = True

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._session: Session | None = None
        self._sums: Sums | None = None
        # Kept: the thread that reduces may close the session while another one asks for a block.
        self._blocks: dict[torch.dtype, int] = {}

    @classmethod
    def bound_s(cls, rates: Rates, size: float, density: float) -> float:
        return aggregated_bound_s(rates, size * density)

    def block(self, tensor: torch.Tensor) -> int:
        return self._blocks.get(tensor.dtype) or super().block(tensor)

    def join(self) -> None:
        from mltcp_tools.collectives.group import KINDS
        from mltcp_tools.collectives.sums import Sums

        setting, group = self.setting, self.setting.group
        name = group.of_first(secrets.token_hex(16))
        if setting.endpoint is None:
            raise SessionError("No aggregator was named.")
        self._session = Session(
            setting.endpoint,
            name,
            group.rank,
            group.world,
            timeout_s=setting.timeout_s,
        )
        chunk = self._session.worker.chunk
        self._blocks = {dtype: chunk(kind) for dtype, kind in KINDS.items()}
        self._sums = Sums(self._session, setting.timeout_s)

    @classmethod
    def takes(cls, tensor: torch.Tensor) -> bool:
        from mltcp_tools.collectives.group import KINDS

        return tensor.dtype in KINDS

    def reduce(self, tensor: torch.Tensor, result: torch.Tensor, how: How) -> Sum | None:
        from mltcp_tools.collectives.group import kind_of

        assert self._sums is not None, "the job hasn't been joined"
        finite, done = self._sums.reduce(tensor, result, kind_of(tensor, how), how)
        return done if finite else None

    def over(self) -> str:
        return self._session.over() if self._session else ""

    def leave(self) -> None:
        if self._session:
            with contextlib.suppress(OSError):
                self._session.leave()

    def close(self) -> None:
        if self._session:
            self._session.close()
