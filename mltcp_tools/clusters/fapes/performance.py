"""The time of a step by the number of GPUs: Pollux's model, fitted to measurements.

step = (compute^g + sync^g)^(1/g), compute = a + b x local batch, sync = 0 on one GPU, c + d (k - 2)
on k GPUs of a server and e + f (k - 2) across servers; g from 1, nothing overlaps, to 10,
everything does (Pollux, section 3.2). Measurements are tables as petuum/adaptdl has them: placement
(GPUs on each server as digits), local_bsz, step_time, sync_time.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mltcp_tools.errors import UsageError

_COLUMNS = ("placement", "local_bsz", "step_time")
_LOW = (1e-8, 1e-8, 1e-8, 1e-8, 1e-8, 1e-8, 1.0)
_HIGH = (np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, 10.0)


@dataclass(frozen=True)
class Measured:
    """Seconds of a step with so many GPUs on so many servers and a batch per GPU."""

    gpus: int
    servers: int
    batch: float
    step_s: float


@dataclass(frozen=True)
class Performance:
    """The fitted model; seconds, and seconds per sample and per further GPU."""

    base_s: float
    sample_s: float
    inside_s: float
    inside_more_s: float
    across_s: float
    across_more_s: float
    overlap: float

    def step_s(self, gpus: int, servers: int, batch: float) -> float:
        """Seconds of a step."""
        values = _steps(
            np.array([[gpus], [servers], [batch]], dtype=float),
            self.base_s,
            self.sample_s,
            self.inside_s,
            self.inside_more_s,
            self.across_s,
            self.across_more_s,
            self.overlap,
        )
        return float(values[0])


FITTED = {
    "bert": Performance(0.2235, 0.05829, 0.1533, 0.0668, 1.372, 0.01438, 2.126),
    "cifar10": Performance(0.01026, 0.0007832, 0.04046, 0.004769, 0.1311, 0.00236, 2.825),
    "deepspeech2": Performance(0.01487, 0.03334, 0.4788, 0.08457, 0.7841, 0.02682, 3.232),
    "imagenet": Performance(0.06225, 0.004544, 0.06911, 0.01758, 0.3106, 0.005528, 2.814),
    "ncf": Performance(0.006964, 8.028e-07, 0.002871, 0.001191, 0.01514, 0.0004357, 1.0),
    "yolov3": Performance(0.1954, 0.02618, 0.05502, 0.08869, 0.6922, 0.0235, 1.176),
}
"""What `mltcp cluster fit` finds for adaptdl's placements of each application (T4 GPUs)."""


def _steps(
    where: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    a: float,
    b: float,
    c: float,
    d: float,
    e: float,
    f: float,
    g: float,
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    gpus, servers, batch = where
    compute = a + b * batch
    more = np.maximum(gpus - 2, 0)
    sync = np.where(servers > 1, e + f * more, c + d * more)
    both = (compute**g + sync**g) ** (1 / g)
    return np.asarray(np.where(gpus > 1, both, compute))


def fit(measured: Sequence[Measured]) -> Performance:
    """The model that fits the logarithms of the measured steps best, by least squares."""
    from scipy.optimize import least_squares

    if len(measured) < 7:
        raise UsageError(f"{len(measured)} measurements are too few for a model of 7 numbers.")
    where = np.array([[m.gpus, m.servers, m.batch] for m in measured], dtype=float).T
    steps = np.log([m.step_s for m in measured])
    typical = float(np.median([m.step_s for m in measured]))
    batch = float(np.median(where[2]))
    start = [typical / 2, typical / 2 / batch, typical / 4, 1e-4, typical / 3, 1e-4, 2.0]

    def off(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
        return np.log(_steps(where, *values)) - steps

    found = least_squares(off, start, bounds=(_LOW, _HIGH), x_scale=start)
    return Performance(*(float(each) for each in found.x))


def error(performance: Performance, measured: Iterable[Measured]) -> float:
    """Mean absolute relative error of the steps."""
    return float(
        np.mean(
            [abs(performance.step_s(m.gpus, m.servers, m.batch) / m.step_s - 1) for m in measured]
        )
    )


def read_placements(file: Path) -> list[Measured]:
    """Rows of a table of placements; a UsageError names line and field."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error_:
        raise UsageError(f"{file} can't be read: {error_.strerror}.") from None
    measured = []
    for number, row in enumerate(csv.DictReader(lines), 2):
        for name in _COLUMNS:
            if not row.get(name):
                raise UsageError(f"{file}:{number}: {name}: missing.")
        if not row["placement"].isdigit():
            raise UsageError(f"{file}:{number}: placement: {row['placement']!r} is not digits.")
        counts = [int(digit) for digit in row["placement"]]
        try:
            batch, step_s = float(row["local_bsz"]), float(row["step_time"])
        except ValueError:
            raise UsageError(f"{file}:{number}: local_bsz, step_time: must be numbers.") from None
        if not (math.isfinite(step_s) and step_s > 0 and batch > 0 and max(counts)):
            raise UsageError(f"{file}:{number}: step_time: must be more than 0.")
        measured.append(Measured(sum(counts), len(counts), batch, step_s))
    return measured
