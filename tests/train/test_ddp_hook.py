# SPDX-License-Identifier: BSD-2-Clause
"""The hook for DDP in real training: it counts, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mltcp_tools.live.sources.messages import Mailbox

RANK = Path(__file__).parent / "ddp_hook_rank.py"
PARAMETERS = 256 * 1024 + 1024 + 1024 * 256 + 256


def test_iterations_are_told_and_the_losses_stay_the_same(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Mailbox(tmp_path / "agent.sock") as box:
        environment = os.environ | {"MLTCP_AGENT_SOCKET": str(tmp_path / "agent.sock")}
        ranks = [
            subprocess.Popen(
                [sys.executable, RANK, str(rank), str(port)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in range(2)
        ]
        try:
            losses = [
                [json.loads(line) for line in rank.communicate(timeout=120)[0].splitlines()]
                for rank in ranks
            ]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        messages = list(box.receive())
    for without, with_hook in losses:
        assert without == with_hook
        assert len(without) == 6
    for rank in ranks:
        told = [message for message in messages if message.pid == rank.pid]
        assert [message.number for message in told] == [1, 2, 3, 4, 5]
        for message in told:
            assert message.job == "ddp"
            assert message.bytes == 4 * PARAMETERS
            assert message.busy_s is not None
            assert 0 < message.busy_s <= message.end_s - message.begin_s
