# SPDX-License-Identifier: BSD-2-Clause
"""Attaching what comes and letting go of what ends: the follower, and the agent around it."""
