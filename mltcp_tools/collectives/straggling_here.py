"""Iteration times of a trace run on one host: waiting for stragglers, and going on without them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltcp_tools.collectives.adaptive.links import Floats
from mltcp_tools.collectives.bench_here import collect, start_rank
from mltcp_tools.collectives.star import Star
from mltcp_tools.testbed.leftovers import RunLock, remove_leftovers, require_privileges

BLOCK = 20
"""Iterations of an arm in a row; then the other arm has the same ones."""


@dataclass(frozen=True)
class Setting:
    """ranks: how many, of those of the trace, the first. rate: of each link in bit/s.

    queue: of each of its ends, bytes. bytes: of the tensor. compute_s: that the trace's median is.
    iterations: of the trace, the first.
    """

    ranks: int
    rate: int
    queue: int
    bytes: int
    compute_s: float
    iterations: int


def run_here(compute: Floats, setting: Setting) -> dict[str, Any]:
    """Mean seconds of an iteration of each arm (`waiting_s`, `going_on_s`), and the share `late`.

    compute: iterations x ranks, in any unit. Needs root.
    """
    require_privileges()
    remove_leftovers()
    chosen = compute[: setting.iterations, : setting.ranks]
    seconds = chosen * (setting.compute_s / float(np.median(chosen)))
    with (
        RunLock() as lock,
        Star(lock.id, [setting.rate] * setting.ranks, setting.queue) as star,
    ):
        ranks = []
        for rank in range(setting.ranks):
            plan = {"compute_s": list(seconds[:, rank]), "bytes": setting.bytes, "block": BLOCK}
            ranks.append(start_rank(star, rank, "mltcp_tools.collectives.straggling_rank", plan))
        try:
            outputs = collect(ranks)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
    found: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    return found | {"gain": found["waiting_s"] / found["going_on_s"]}
