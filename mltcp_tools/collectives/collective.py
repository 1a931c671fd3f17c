# SPDX-License-Identifier: BSD-2-Clause
"""The interface of a collective, to reduce by it, compare it, bound it or name it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.collectives.bounds import Rates
from mltcp_tools.collectives.library import Chunks, How
from mltcp_tools.collectives.session import Endpoint

if TYPE_CHECKING:
    import torch

    from mltcp_tools.collectives.group import Group


BLOCK = 32
"""Values that are sent together or not at all where ranks agree on that beforehand, by a byte each:
1/128 of a float32 tensor's size."""


class CollectiveError(MltcpError):
    """A reduction that couldn't be done in any way."""


def sentence_of(error: BaseException) -> str:
    """The words of Gloo: the first sentence, without its place in Gloo's sources."""
    line = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[[^\]]*\]\s*", "", line).partition(". ")[0].rstrip(".")


def name_of(tensor: torch.Tensor, how: How) -> str:
    """A reduction, as a sentence names it."""
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"the {how.name.lower()} of {tensor.numel()} {kind}"


@dataclass
class Sum:
    """Of a reduction. chunks: None, or those that `result` has; the others are zero."""

    result: torch.Tensor
    chunks: Chunks | None = None

    def whole(self) -> torch.Tensor:
        """With the zeros."""
        import torch

        if self.chunks:
            marks = torch.from_numpy(self.chunks.summed())
            there = marks.repeat_interleave(self.chunks.values)[: self.result.numel()]
            self.result[~there] = 0
            self.chunks = None
        return self.result


@dataclass(frozen=True)
class Setting:
    """Means of a collective at one rank.

    group: the ranks' own Gloo. timeout_s: seconds without progress, after which a reduction is
    given up. endpoint: the aggregator, where one is named.
    """

    group: Group
    timeout_s: float = 30.0
    endpoint: Endpoint | None = None


class Collective:
    """One way to sum up tensors of all ranks; every rank makes the same calls in the same order.

    at_aggregator: whether it needs one. by_group: whether it needs nothing but the ranks' Gloo, so
    that no other way is left where it fails.
    """

    name: ClassVar[str]
    at_aggregator: ClassVar[bool] = False
    by_group: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    @classmethod
    def bound_s(cls, rates: Rates, size: float, density: float) -> float:
        """Seconds that it takes at least for `size` bytes, of whose blocks a share isn't zero."""
        raise NotImplementedError

    def block(self, tensor: torch.Tensor) -> int:
        """Values of a tensor that are sent together or not at all."""
        return BLOCK

    def join(self) -> None:
        """Connect; all ranks call it. SessionError where this one can't."""

    @classmethod
    def takes(cls, tensor: torch.Tensor) -> bool:
        """Tell whether it is for such tensors; ranks' Gloo reduces the others."""
        return True

    def why_not(self) -> str:
        """Reason, known after `join`, why it can't gain anything; empty where it may."""
        return ""

    def reduce(self, tensor: torch.Tensor, result: torch.Tensor, how: How) -> Sum | None:
        """Reduce a contiguous tensor in place, by way of `result`, which is flat and as large.

        None where a value isn't finite somewhere, which all ranks see alike. Raises SessionError
        where it can't be done; some ranks may have the sum then. In both cases the tensor is as it
        was. Where `by_group`, CollectiveError instead.
        """
        raise NotImplementedError

    def over(self) -> str:
        """Between reductions: why there can be no more of them, of what others know as well, too.

        Empty while there can.
        """
        return ""

    def look(self) -> None:
        """Choose how to go on. Called after a reduction, when nobody waits for one."""

    def leave(self) -> None:
        """End in peace: all of this rank's reductions are done. Closing after that is fine."""
        self.close()

    def close(self) -> None:
        """End, so that ranks that still wait learn of it. Closing twice is fine."""
