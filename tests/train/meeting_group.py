# SPDX-License-Identifier: BSD-2-Clause
"""A group among ranks that are threads; it says so where two of them do different things."""

from __future__ import annotations

from typing import Any

from mltcp_tools.collectives.agreement import Agreement


class MeetingGroup:
    """Group among threads."""

    def __init__(self, rank: int, world: int, gather: Any) -> None:
        self.rank, self.world, self._gather = rank, world, gather
        self.agreement = Agreement(self._exchange, self.tell)

    def _exchange(self, *numbers: int) -> list[Any]:
        return self._meet("exchange", numbers)

    def _meet(self, what: str, value: Any) -> list[Any]:
        told = self._gather((what, value))
        assert len({each for each, _ in told}) == 1, f"mispaired: {[each for each, _ in told]}"
        return [each for _, each in told]

    def tell(self, what: Any) -> list[Any]:
        return self._meet("tell", what)

    def of_first(self, what: Any) -> Any:
        return self.tell(what)[0]

    def give(self, tensor: Any, giver: int) -> None:
        tensor.copy_(self._meet(f"give {giver} {tensor.numel()}", tensor.clone())[giver])

    def all_reduce(self, tensor: Any) -> None:
        told = self._meet(f"all_reduce {tensor.numel()} {tensor.dtype}", tensor.clone())
        tensor.copy_(sum(told[1:], start=told[0]))
