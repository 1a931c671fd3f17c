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
            "record": "Record the iterations of jobs on this host, for `mltcp report`.",
            "profile": "Show what each job sends in an iteration.",
            "priorities": "Order the bursts of jobs, and set each job's priority.",
        }
    },
)
def command() -> None:
    """Emulate jobs; record, profile and prioritize running ones."""
