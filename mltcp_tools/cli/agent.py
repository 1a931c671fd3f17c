# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp agent`: follow training processes by rules, for as long as the host runs."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from importlib import resources
from pathlib import Path

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.options import backend_option, shown_option
from mltcp_tools.cli.text import examples, say
from mltcp_tools.hooks import AGENT_SOCKET
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.live.agent.dashboard import dashboard
from mltcp_tools.live.agent.rules import CONFIG

METRICS = "127.0.0.1:9477"
"""The address at which metrics are published unless told."""

SHIPPED = {
    "rules": "agent.yaml",
    "unit": "mltcp-agent.service",
    "alerts": "alerts.yaml",
    "slurm-task-prolog": "slurm/task-prolog",
    "slurm-epilog": "slurm/epilog",
}
"""The words of `--print`, each with its file beside the agent's code."""

DASHBOARD = "dashboard"


@click.command(
    epilog=examples(
        "mltcp agent --print rules",
        "mltcp agent --check --config agent.yaml",
        "mltcp agent --metrics",
    )
)
@shown_option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=CONFIG,
    metavar="FILE",
    help="YAML file with the rules: which processes belong to which job.",
)
@click.option("--check", is_flag=True, help="Print whether the rules in FILE are valid, and end.")
@click.option(
    "--print",
    "printed",
    type=click.Choice((*SHIPPED, DASHBOARD)),
    metavar="WHAT",
    help=f"Print a file for running the agent, and end: {', '.join((*SHIPPED, DASHBOARD))}.",
)
@click.option(
    "--metrics",
    is_flag=False,
    flag_value=METRICS,
    metavar="[ADDRESS]",
    help=f"Serve metrics for Prometheus at ADDRESS ({METRICS} if none is given).  [default: no"
    " metrics]",
)
@backend_option
@click.option("--json", "as_json", is_flag=True, help="With --check: print the rules as JSON.")
def command(
    config: Path,
    check: bool,
    printed: str | None,
    metrics: str | None,
    backend: str,
    as_json: bool,
) -> None:
    """Attach connections of training processes as they are opened, by the rules in FILE.

    Runs until SIGTERM, and then detaches all connections or leaves them attached, as the rules say.
    Learns iterations from hooks in training loops, from calls of NCCL and Gloo, and from the flows.
    SIGHUP reads FILE again; wrong rules are refused, and the previous ones stay. One agent runs on
    a host. Needs root, and `mltcp load` first.
    """
    from mltcp_tools.live.agent.agent import run_agent
    from mltcp_tools.live.agent.rules import load_config

    if printed == DASHBOARD:
        click.echo(json.dumps(dashboard(), indent=1))
        return
    if printed:
        text = (resources.files("mltcp_tools.live.agent") / SHIPPED[printed]).read_text()
        click.echo(text.replace("@MLTCP@", str(Path(sys.argv[0]).resolve())), nl=False)
        return
    if as_json and not check:
        raise UsageError("--json needs --check.")
    if check:
        found = load_config(config)
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(found), indent=2, default=str))
        else:
            click.echo(f"{config}: valid, rules: {len(found.rules)}.")
        for doubt in found.doubts:
            say(f"{config}: {doubt}")
        return
    mailbox = Path(os.environ.get("MLTCP_AGENT_SOCKET") or AGENT_SOCKET)
    run_agent(config, mailbox, get_backend(backend), say, metrics)
