# SPDX-License-Identifier: BSD-2-Clause
"""The slow-down of two jobs that share the same GPUs: measured pairs, `gavel:FILE`.

gavel: `simulation_throughputs.json` of stanford-futuredata/gavel: iterations per second of each of
its job configurations on one GPU of a kind, alone and beside each other one; 0 where the memory of
a GPU doesn't hold both.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.models import MODELS, Model

GPU = "v100"
GAVEL_MODELS = {
    "ResNet-18": "resnet18",
    "ResNet-50": "resnet50",
    "Transformer": "transformer",
    "LM": "lm",
    "Recommendation": "recommendation",
    "CycleGAN": "cyclegan",
    "A3C": "a3c",
}


@dataclass(frozen=True)
class Pairs:
    """models: by name, with the measured time of an iteration. slow: (name, name of the neighbour)
    -> slow-down of the first one's computing, at least 1; pairs that don't fit are left out."""

    models: Mapping[str, Model]
    slow: Mapping[tuple[str, str], float]

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that say which pairs these are."""
        whole = sorted(self.models.items()), sorted(self.slow.items())
        return hashlib.sha256(repr(whole).encode()).hexdigest()[:12]

    def slowdowns(self, one: Model, other: Model) -> tuple[float, float] | None:
        """Of both, if they share their GPUs; None where that is unknown or can't be."""
        a, b = self.slow.get((one.name, other.name)), self.slow.get((other.name, one.name))
        return None if a is None or b is None else (a, b)


def gavel_model(text: str) -> tuple[Model, int | None] | None:
    """Model and batch of `ResNet-18 (batch size 64)`, named resnet18-64; None: no such model."""
    match = re.fullmatch(r"(.+?)(?: \(batch size ([1-9][0-9]{0,5})\))?", text)
    if match is None or match[1] not in GAVEL_MODELS:
        return None
    model = MODELS[GAVEL_MODELS[match[1]]]
    if match[2] is None:
        return model, None
    return replace(model, name=f"{model.name}-{match[2]}"), int(match[2])


def read_pairs(spec: str) -> Pairs:
    """Pairs from `gavel:FILE`; a UsageError names the field that is wrong."""
    kind, _, file = spec.partition(":")
    if kind != "gavel" or not file:
        raise UsageError(f"{spec!r} names no measured pairs; write gavel:FILE.")
    try:
        whole = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.") from None
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}.") from None
    table = whole.get(GPU) if isinstance(whole, dict) else None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: {GPU}: missing; throughputs are read for that GPU.")
    # Pairs were measured on one GPU only.
    single = {match[1]: row for key, row in table.items() if (match := _ONE.fullmatch(key))}
    for text, row in single.items():
        if not isinstance(row, dict):
            raise UsageError(f"{file}: {GPU}: {text}: must be a table of iterations per second.")
    models: dict[str, Model] = {}
    alone: dict[str, float] = {}
    for text, row in single.items():
        found = gavel_model(text)
        if found is not None:
            rate = _rate(row.get("null"), file, f"{GPU}: {text}: null")
            if rate == 0:
                raise UsageError(f"{file}: {GPU}: {text}: null: must be more than 0.")
            alone[text] = rate
            models[text] = replace(found[0], compute_s=1 / rate)
    slow = {}
    for text, row in single.items():
        for key, value in row.items():
            match = _ONE.fullmatch(key)
            if match is None or match[1] not in models or text not in models:
                continue
            if not isinstance(value, list) or len(value) != 2:
                raise UsageError(f"{file}: {GPU}: {text}: {key}: must be two numbers.")
            rates = [_rate(each, file, f"{GPU}: {text}: {key}") for each in value]
            if min(rates) > 0:
                pair = models[text].name, models[match[1]].name
                slow[pair] = max(1.0, alone[text] / rates[0])
    if not slow:
        raise UsageError(f"{file}: {GPU}: no pair of jobs on one GPU.")
    return Pairs({model.name: model for model in models.values()}, slow)


_ONE = re.compile(r"\('(.+)', 1\)")


def _rate(value: Any, file: str, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{file}: {field}: must be a number of iterations per second.")
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{file}: {field}: must be 0 or more, not {value}.")
    return float(value)
