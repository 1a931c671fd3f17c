# SPDX-License-Identifier: BSD-2-Clause
"""Messages of ranks to each other after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from mltcp_tools.collectives.agreement import Agreement, Progress
from mltcp_tools.collectives.session import NOT_ALL, SessionError


@pytest.mark.parametrize(
    "told", [None, 7, {}, [], [1, "", "", ""], [1.0, "", ""], [True, "", ""], [1, None, ""]]
)
def test_a_rank_that_tells_what_cannot_be_is_named(told: Any) -> None:
    agreement = Agreement(lambda *numbers: [(1, 0)] * 2, lambda what: [what, told])
    with pytest.raises(SessionError, match="Rank 1 sent an invalid message"):
        agreement.meet(3, "", "the sum of 4 float32")


@pytest.mark.parametrize("other", [f"After 30 s {NOT_ALL}", "Rank 2 left."])
def test_the_rank_that_failed_by_itself_says_why(other: str) -> None:
    why = "The aggregator's token is another one; set MLTCP_AGGREGATOR_TOKEN."
    assert Progress([0] * 3, [other, other, why], [""] * 3).reason == why
    assert Progress([0] * 3, ["", other, ""], [""] * 3).reason == other
