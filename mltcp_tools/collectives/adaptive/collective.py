# SPDX-License-Identifier: BSD-2-Clause
"""The collective along trees that are chosen for the links as they are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mltcp_tools.collectives.bounds import Rates, hosts_bound_s
from mltcp_tools.collectives.collective import Collective, Setting, Sum, sentence_of
from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.session import SessionError

if TYPE_CHECKING:
    import torch

    from mltcp_tools.collectives.adaptive.session import AdaptiveSession


class Adaptive(Collective):
    """Sums along trees over TCP, or by Gloo's ring where no trees are sooner (AdapCC)."""

    name = "adaptive"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._session: AdaptiveSession | None = None

    @classmethod
    def bound_s(cls, rates: Rates, size: float, density: float) -> float:
        return hosts_bound_s(rates, size)

    def join(self) -> None:
        from mltcp_tools.collectives.adaptive.mesh import Mesh
        from mltcp_tools.collectives.adaptive.session import AdaptiveSession

        group = self.setting.group
        mesh = Mesh(
            group.rank,
            group.world,
            group.own_address(),
            group.agreement.tell,
            self.setting.timeout_s,
        )
        self._session = AdaptiveSession(mesh, group.agreement.tell, ring=self._ring)

    def _ring(self, array: Any) -> None:
        """Sum an array by Gloo's ring."""
        import torch

        try:
            self.setting.group.all_reduce(torch.from_numpy(array))
        except RuntimeError as error:
            raise SessionError(f"The ring failed ({sentence_of(error)}).") from None

    @classmethod
    def takes(cls, tensor: torch.Tensor) -> bool:
        """Not short floats, which would travel as long ones; Gloo's ring adds them as they are."""
        import torch

        return tensor.dtype in (torch.float32, torch.int32)

    def why_not(self) -> str:
        is_sooner = self._session is not None and self._session.by_trees
        return "" if is_sooner else "no trees are faster on the links as measured"

    def reduce(self, tensor: torch.Tensor, result: torch.Tensor, how: How) -> Sum | None:
        assert self._session is not None, "the job hasn't been joined"
        result.copy_(tensor.view(-1))
        self._session.reduce(result.numpy())
        if how is How.AVERAGE:
            result.div_(self.setting.group.world)
        tensor.copy_(result.view_as(tensor))
        return Sum(result)

    def over(self) -> str:
        if self._session and self._session.mesh.has_ended():
            return "A rank closed its connections along trees."
        return ""

    def look(self) -> None:
        if self._session:
            self._session.look()

    def close(self) -> None:
        if self._session:
            self._session.close()
