# SPDX-License-Identifier: BSD-2-Clause
"""A training as tutorials have it: with the one line added, it trains as it did without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mltcp_tools.collectives import example
from mltcp_tools.collectives.session import PORT
from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.lab.collectives.bench_here import aggregator
from mltcp_tools.lab.collectives.star import WORKER_INTERFACE, Star
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.live.sources.messages import Mailbox

EXAMPLE = Path(example.__file__)
LINE = "    mc.enable(model)\n"
WORLD = 3


def train(net: Star, script: Path, aggregated: bool, **more: str) -> list[list[str]]:
    """Return what each rank printed, line by line."""
    ranks = []
    for rank in range(WORLD):
        environment = (
            os.environ
            | {
                "MASTER_ADDR": net.address(0),
                "MASTER_PORT": "29512" if aggregated else "29513",
                "RANK": str(rank),
                "WORLD_SIZE": str(WORLD),
                "GLOO_SOCKET_IFNAME": WORKER_INTERFACE,
                "OMP_NUM_THREADS": "1",
                "MLTCP_JOB": script.stem,
            }
            | more
        )
        if aggregated:
            environment["MLTCP_AGGREGATOR"] = f"{net.gateway(rank)}:{PORT}"
        with inside(net.workers[rank]):
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "-W", "error::RuntimeWarning", script],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    preexec_fn=die_with_parent,
                )
            )
    outputs = [process.communicate(timeout=300) for process in ranks]
    codes = [process.returncode for process in ranks]
    assert codes == [0] * WORLD, [err for _, err in outputs]
    return [out.splitlines() for out, _ in outputs]


def losses(lines: list[str]) -> list[float]:
    return [float(line.split()[-1]) for line in lines if line.startswith("step")]


@pytest.mark.parametrize("algorithm", ["auto", "aggregated"])
def test_the_example_trains_alike_with_the_line_added(algorithm: str, tmp_path: Path) -> None:
    text = EXAMPLE.read_text()
    assert text.count(LINE) == 1
    plain, script = tmp_path / "plain.py", tmp_path / EXAMPLE.name
    plain.write_text(text.replace(LINE, ""))
    script.write_text(text.replace("(model)\n", f"(model, {algorithm!r})\n"))
    with RunLock() as lock, Star(lock.id, [200_000_000] * WORLD) as net:
        without = train(net, plain, aggregated=False)
        # A fallback to Gloo warns, and a warning ends the script.
        told = tmp_path / "agent.sock"
        with aggregator(net, f"test-{lock.id}", "xdp"), Mailbox(told) as box:
            with_line = train(net, script, aggregated=True, MLTCP_AGENT_SOCKET=str(told))
            messages = list(box.receive())
    # The agent hears of the iterations: as many as the socket holds, for here nobody reads it yet.
    assert messages
    assert all(message.job == EXAMPLE.stem and message.bytes for message in messages)
    assert with_line[0][-1].startswith("parameters")
    assert len({lines[-1] for lines in with_line}) == 1  # one model at all ranks
    for ours, theirs in zip(with_line, without, strict=True):
        assert losses(ours) == pytest.approx(losses(theirs), rel=1e-2, abs=2e-3)
        assert losses(ours)[-1] < 0.9 * losses(ours)[0]
