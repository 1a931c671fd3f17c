"""Jobs where they ran: recorded placements, for holding predictions against what was observed."""

from __future__ import annotations

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import place
from mltcp_tools.clusters.view import Decision, View


class Replay:
    """A job has the GPUs that it had, as soon as they are free; one whose place isn't known goes
    where `fifo` puts it."""

    name = "replay"
    round_s: float | None = None

    def decide(self, view: View) -> Decision:
        """The running ones, and those whose GPUs are free."""
        decided: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        free = view.free.copy()
        for state in view.waiting:
            placed: Allocation = dict(state.job.placement)
            if not placed:
                placed = place(view, free, state)
            if not placed or any(free[server] < gpus for server, gpus in placed.items()):
                continue
            decided[state.number] = placed
            for server, gpus in placed.items():
                free[server] -= gpus
        return decided
