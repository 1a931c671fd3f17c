"""Sharing by predictions: the default where jobs may share GPUs."""

from __future__ import annotations

from mltcp_tools.clusters.interference import PairModel, fit_pairs
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies.sharing import Matched
from mltcp_tools.clusters.view import Decision, JobState, View


class Predicted(Matched):
    """Greedy by what a model says that saw half of the measured pairs."""

    def __init__(self, seed: int) -> None:
        super().__init__("predicted", self._both)
        self._seed = seed
        self._fitted: tuple[Pairs, PairModel] | None = None

    def decide(self, view: View) -> Decision:
        """As Matched decides; before that, the model is fitted to the view's pairs."""
        if view.pairs is not None and (self._fitted is None or self._fitted[0] is not view.pairs):
            self._fitted = view.pairs, fit_pairs(view.pairs, self._seed)
        return super().decide(view)

    def _both(self, host: JobState, guest: JobState) -> tuple[float, float]:
        assert self._fitted is not None
        return self._fitted[1].slowdowns(host, guest)
