# SPDX-License-Identifier: BSD-2-Clause
"""Neighbours: traffic on the jobs' link that isn't training.

A bulk flow sends as much as it can, all the time; its throughput is what counts. A request sends
`size` bytes, is over when the receiver has confirmed them, and is followed by the next one after
`think` seconds, on the same connection; its completion time is what counts. Both are emulated jobs
of their own: a bulk flow is one burst without an end.
"""

from __future__ import annotations

from dataclasses import dataclass

from mltcp_tools.lab.emulator.job import MAX_BYTES, JobSpec

OWN = "variant"
"""As the `cc` of a neighbour: the congestion control of the variant that runs."""

# How often the bytes that a bulk flow has got across are looked at.
SAMPLES_MS = 100
# Longer than any run: neighbours go on until they are told to stop.
_FOREVER_S = 1e9


@dataclass(frozen=True)
class Neighbour:
    """A bulk flow, or where `size` is given, requests of so many bytes each.

    think: seconds between a request's end and the next one; jitter: its standard deviation as a
    share of it. links: the names of those it crosses where there are several.
    """

    name: str
    cc: str
    size: int | None = None
    think: float = 0.0
    jitter: float = 0.0
    links: tuple[str, ...] = ()

    def cc_in(self, variant_cc: str) -> str:
        """Its congestion control in a variant that runs with `variant_cc`."""
        return variant_cc if self.cc == OWN else self.cc

    def spec(self, *, cc: str, seed: int) -> JobSpec:
        """The neighbour as the emulator runs it."""
        return JobSpec(
            bytes_per_iteration=self.size or MAX_BYTES,
            compute_s=self.think,
            duration_s=_FOREVER_S,
            jitter=self.jitter,
            seed=seed,
            cc=cc,
        )
