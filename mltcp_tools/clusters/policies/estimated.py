"""Policies that know how long jobs last only by estimates."""

from __future__ import annotations

from dataclasses import replace

from mltcp_tools.clusters.view import Decision, Policy, View

SUFFIX = "-estimated"
BLUR = 0.8
"""Standard deviation of the logarithm of an estimated length over the true one: half of the
estimates are off by a factor of 1.7 or more."""


class Estimated:
    """A policy whose view of remaining times is an estimate."""

    def __init__(self, own: Policy) -> None:
        self.name, self.round_s = f"{own.name}{SUFFIX}", own.round_s
        self._own = own

    def decide(self, view: View) -> Decision:
        """As its own decides with estimates."""
        return self._own.decide(replace(view, blur=BLUR))
