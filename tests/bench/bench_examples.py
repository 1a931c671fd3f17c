# SPDX-License-Identifier: BSD-2-Clause
"""Seconds of a step of the shipped examples, by options of `enable`; variants go by turns.

Run as root: .venv/bin/python tests/bench/bench_examples.py [RATE [RANKS [TURNS]]], in bit/s. An
option that gains nothing here has no reason to stay.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import mltcp_tools.collectives.examples
from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.lab.collectives.star import WORKER_INTERFACE, Star
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside

EXAMPLES = Path(mltcp_tools.collectives.examples.__file__).parent
VARIANTS = {
    "gloo": '(model, "gloo")',
    "adaptive": '(model, "adaptive")',
}
SKIPPED = 4  # steps, in which DDP makes its buckets and connections are opened


def script_of(example: str, variant: str) -> str:
    """The example with the variant's options, twice as long, and the time beside each loss."""
    text = (EXAMPLES / f"{example}.py").read_text()
    for before, after in (
        ("mc.enable(model)", f"mc.enable{VARIANTS[variant]}"),
        ('loss {loss.item():.4f}"', 'loss {loss.item():.4f}", __import__("time").monotonic()'),
        ("= 20,", "= 40,"),
    ):
        assert before in text, (example, before)
        text = text.replace(before, after)
    return text


def step_s(net: Star, script: Path) -> float:
    """Run it on all ranks; seconds of a step."""
    ranks = []
    for rank in range(len(net.workers)):
        environment = os.environ | {
            "MASTER_ADDR": net.address(0),
            "MASTER_PORT": "29513",
            "RANK": str(rank),
            "WORLD_SIZE": str(len(net.workers)),
            "GLOO_SOCKET_IFNAME": WORKER_INTERFACE,
            "OMP_NUM_THREADS": "1",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
            "PYTHONWARNINGS": "ignore::FutureWarning",
        }
        with inside(net.workers[rank]):
            ranks.append(
                subprocess.Popen(
                    [sys.executable, script],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                    preexec_fn=die_with_parent,
                )
            )
    outputs = [process.communicate(timeout=300)[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit("A rank failed; its words are above.")
    ends = [float(line.split()[-1]) for line in outputs[0].splitlines() if "step" in line]
    return (ends[-1] - ends[SKIPPED - 1]) / (len(ends) - SKIPPED)


def main() -> None:
    rate, ranks, turns = (*map(int, sys.argv[1:]), *(100_000_000, 4, 3)[len(sys.argv) - 1 :])
    found: dict[tuple[str, str], list[float]] = {}
    with (
        RunLock() as lock,
        Star(lock.id, [rate] * ranks) as net,
        tempfile.TemporaryDirectory() as folder,
    ):
        script = Path(folder) / "example.py"
        for turn in range(turns):
            for example in ("cnn", "transformer", "embedding"):
                for variant in list(VARIANTS)[:: 1 if turn % 2 else -1]:
                    script.write_text(script_of(example, variant))
                    found.setdefault((example, variant), []).append(step_s(net, script))
    for (example, variant), own in sorted(found.items()):
        gains = [a / b for a, b in zip(found[example, "gloo"], own, strict=True)]
        print(
            f"{example:12} {variant:9} {statistics.median(own) * 1e3:6.1f} ms per step,"
            f" {statistics.median(gains):.2f} times as fast as gloo"
            f" ({min(gains):.2f} to {max(gains):.2f})"
        )


if __name__ == "__main__":
    main()
