# SPDX-License-Identifier: BSD-2-Clause
"""Plans: jobs that fit together on a link, and the start of each.

The centralised counterpart of MLTCP, after Cassini (Rajasekaran et al., NSDI 2024): profiles of
jobs' communication are laid on circles, rotated against each other, and scored. Works on files
alone: needs no root, no kernel feature and no backend.

    from mltcp_tools.lab.analysis import load_run
    from mltcp_tools.lab.planning.link import score_link
    from mltcp_tools.lab.planning.from_run import profiles_of_run

    profiles = profiles_of_run(load_run("runs/four-jobs-…"))
    plan = score_link(profiles, capacity_bps=200e6)
    plan.shifts      # job -> seconds from the common start to that of its iterations
    plan.periods     # job -> seconds from one of them to the next
"""
