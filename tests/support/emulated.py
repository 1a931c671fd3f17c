# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of the emulator in this process, with a server for tests."""

from __future__ import annotations

from typing import Any

from mltcp_tools.lab.emulator.client import Client, ClientOptions
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.emulator.report import ClientResult


def run(port: int, host: str = "127.0.0.1", **changes: Any) -> ClientResult:
    """A short job to the server at that port, with these changes to what it does by default."""
    values: dict[str, Any] = {"bytes_per_iteration": 300_001, "compute_s": 0.005, "iterations": 3}
    options = {k: changes.pop(k) for k in ("timeout_s", "trace_s") if k in changes}
    client = Client(JobSpec(**(values | changes)), ClientOptions(host, port, **options))
    client.run()
    return client.result
