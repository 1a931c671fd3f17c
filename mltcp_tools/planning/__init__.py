"""Which jobs fit together on a link, and when each should start.

The centralised counterpart of MLTCP, after Cassini (Rajasekaran et al., NSDI 2024): profiles of
jobs' communication are laid on circles, rotated against each other, and scored. Works on files
alone: needs no root, no kernel feature and no backend.

    profiles = profiles_of_run(load_run("runs/four-jobs-…"))
    plan = score_link(profiles, capacity_bps=200e6)
    plan.shifts      # job -> seconds by which each of its iterations starts late
"""

from __future__ import annotations

from mltcp_tools.planning.link import LinkPlan, score_link
from mltcp_tools.planning.profile import Phase, Profile
from mltcp_tools.planning.recorded import profiles_of_run

__all__ = ["LinkPlan", "Phase", "Profile", "profiles_of_run", "score_link"]
