"""The traffic of links over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.engine.library import Phase
from mltcp_tools.clusters.topology import Topology

_BINS = 256


class LinkUse:
    """Bytes per link in bins of time; bins double as time goes on, so that memory doesn't grow."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._bytes = np.zeros((len(topology.rates_bps), _BINS))
        self.bin_s = 1.0

    @property
    def names(self) -> list[str]:
        """Of the links."""
        return self._topology.names

    def add(self, phases: Sequence[Phase], iterations: int, begun_s: float, end_s: float) -> None:
        """So many iterations of a job, spread evenly between two instants."""
        if not iterations or end_s <= begun_s:
            return
        while end_s > self.bin_s * _BINS:
            paired = self._bytes.reshape(len(self._bytes), _BINS // 2, 2).sum(axis=2)
            self._bytes = np.concatenate([paired, np.zeros_like(paired)], axis=1)
            self.bin_s *= 2
        edges = np.clip(np.arange(_BINS + 1) * self.bin_s, begun_s, end_s)
        shares = np.diff(edges) / (end_s - begun_s)
        first, last = int(begun_s // self.bin_s), min(_BINS, int(end_s // self.bin_s) + 1)
        for phase in phases:
            for link, times in phase.crossings.items():
                self._bytes[link, first:last] += (
                    phase.size * times * iterations * shares[first:last]
                )

    def utilisation(self) -> npt.NDArray[np.float64]:
        """Share of its rate that each link carried in each bin: shape (links, bins)."""
        rates = np.array(self._topology.rates_bps)[:, None]
        return np.asarray(self._bytes * 8 / self.bin_s / rates)
