# SPDX-License-Identifier: BSD-2-Clause
"""The collectives there are, by name; a new one is its class and its line here."""

from __future__ import annotations

from mltcp_tools.collectives.adaptive.collective import Adaptive
from mltcp_tools.collectives.aggregated import Aggregated
from mltcp_tools.collectives.collective import Collective
from mltcp_tools.collectives.gloo import Gloo, Sparse

COLLECTIVES: dict[str, type[Collective]] = {
    each.name: each for each in (Gloo, Aggregated, Sparse, Adaptive)
}

AUTO = "auto"
"""The collective of `enable` where no name is given."""
