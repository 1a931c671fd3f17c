"""What becomes of late gradients, and what that does to a model: a table.

.venv/bin/python tests/bench/bench_straggler_convergence.py TIMES.csv [COLLECTIVE_SHARE]

A small network learns to tell Gaussian clouds apart, on as many ranks as the trace has workers.
Each rank has more of some clouds than of others, so a rank left out is missed. Whose gradients are
late in which step is what the coordinator's rules make of the trace. No time passes; the seeds are
fixed. OMP_NUM_THREADS=1 makes it faster on a busy host.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import numpy as np

from mltcp_tools.collectives.adaptive.links import Floats
from mltcp_tools.collectives.adaptive.straggling import (
    Lateness,
    read_times,
    run_going_on,
    run_waiting,
)

FEATURES, HIDDEN, CLOUDS, BATCH, RATE = 16, 32, 10, 16, 0.1
SEEDS = 5


def draw(
    rng: np.random.Generator, centres: Floats, weights: Floats, size: int
) -> tuple[Floats, Floats]:
    """Points and the clouds they are of, as one-hot rows."""
    labels = rng.choice(CLOUDS, size, p=weights)
    return centres[labels] + rng.standard_normal((size, FEATURES)), np.eye(CLOUDS)[labels]


def loss_and_gradient(model: Floats, points: Floats, wanted: Floats) -> tuple[float, Floats]:
    """Cross entropy of a network of one hidden layer, and its gradient, all of it in one vector."""
    split = FEATURES * HIDDEN
    first, second = model[:split].reshape(FEATURES, HIDDEN), model[split:].reshape(HIDDEN, CLOUDS)
    hidden = np.maximum(points @ first, 0)
    scores = hidden @ second
    scores -= scores.max(axis=1, keepdims=True)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    loss = float(-np.log((shares * wanted).sum(axis=1) + 1e-12).mean())
    back = (shares - wanted) / len(points)
    into_first = points.T @ ((back @ second.T) * (hidden > 0))
    return loss, np.concatenate([into_first.ravel(), (hidden.T @ back).ravel()])


def train(late: Lateness, what: str, seed: int) -> list[float]:
    """Loss over all clouds after each step. what: becomes of late gradients, `next` or `drop`."""
    rng = np.random.default_rng(seed)
    steps, ranks = late.shape
    centres = 2 * rng.standard_normal((CLOUDS, FEATURES))
    weights = rng.dirichlet(np.full(CLOUDS, 0.3), ranks)
    test = draw(rng, centres, np.full(CLOUDS, 1 / CLOUDS), 2000)
    model = rng.standard_normal(FEATURES * HIDDEN + HIDDEN * CLOUDS) * 0.1
    put_off = np.zeros((ranks, model.size))
    losses = []
    for step in range(steps):
        total = np.zeros(model.size)
        for rank in range(ranks):
            points, wanted = draw(rng, centres, weights[rank], BATCH)
            gradient = loss_and_gradient(model, points, wanted)[1] + put_off[rank]
            put_off[rank] = 0
            if not late[step, rank]:
                total += gradient
            elif what == "next":
                put_off[rank] = gradient
        model -= RATE * total / ranks
        losses.append(loss_and_gradient(model, *test)[0])
    return losses


def main() -> None:
    """One row for each choice: the loss at the end, and when waiting has done half of the steps."""
    compute = read_times(Path(sys.argv[1]))
    share = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    collective = share * median(compute.ravel())
    waiting_s, none = run_waiting(compute, collective)
    going_on_s, late = run_going_on(compute, collective)
    print(f"{late.mean():.0%} of the gradients late; {len(compute)} steps, {SEEDS} seeds.\n")
    print("| late gradients | iteration | loss after all steps | loss when waiting has done half |")
    print("| --- | --- | --- | --- |")
    half_s = waiting_s * len(compute) / 2
    for name, mask, what, step_s in (
        ("waited for", none, "next", waiting_s),
        ("in the next step", late, "next", going_on_s),
        ("dropped", late, "drop", going_on_s),
    ):
        runs = np.array([train(mask, what, seed) for seed in range(SEEDS)])
        at = int(half_s / step_s) - 1
        print(
            f"| {name} | {step_s:.4g} | {runs[:, -1].mean():.3f} ± {runs[:, -1].std():.3f} |"
            f" {runs[:, at].mean():.3f} ± {runs[:, at].std():.3f} |"
        )


if __name__ == "__main__":
    main()
