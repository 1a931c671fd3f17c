# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab`: what experimenters do beside the testbed and the simulator."""

from __future__ import annotations

import click

from mltcp_tools.cli.lazy import LazyGroup


@click.group(
    cls=LazyGroup,
    sections={
        "Commands": {
            "emulate": "Run one side of an emulated training job over TCP.",
            "record": "Record the iterations of attached jobs for `mltcp report`.",
            "profile": "Show what jobs send per iteration, from runs or captures.",
            "priorities": "Order jobs' bursts, and give each its priority.",
        }
    },
)
def command() -> None:
    """Emulate jobs, record and profile them, give them priorities."""
