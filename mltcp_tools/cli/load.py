# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp load`: register the congestion controls with the kernel."""

from __future__ import annotations

import os

import click

from mltcp_tools.cli.options import backend_option, flow_options
from mltcp_tools.cli.status import show_status
from mltcp_tools.cli.text import examples, say
from mltcp_tools.kernel.backends import checks, get_backend
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.congestion_controls import NAMES, STANDARD
from mltcp_tools.kernel.native import requirements


@click.command(
    epilog=examples(
        "mltcp load",
        "mltcp load mltcp_cubic --backend bpf",
        then=f"NAME is one of {', '.join(NAMES)}; default: {', '.join(STANDARD)}. `mltcp` is the"
        " recommended one (on Reno); `mltcp_reno` and `mltcp_cubic` are the published algorithm."
        " `mltcp_dctcp` needs ECN, `mltcp_int` switches that report their queues in"
        " packets (in-band telemetry).",
    )
)
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")
@backend_option
@flow_options("each flow without a job")
@click.option(
    "--replace",
    is_flag=True,
    help="Replace the loaded build by this tool's. Connections, jobs and tags stay as they are, as"
    " do parameters that aren't given here.",
)
@click.option(
    "--ensure",
    is_flag=True,
    help="Load MLTCP unless this tool's build is loaded already. For systemd units and packages.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def command(
    names: tuple[str, ...],
    backend: str,
    burst_bytes: int | None,
    gap_s: float | None,
    slope: float | None,
    intercept: float | None,
    replace: bool,
    ensure: bool,
    as_json: bool,
) -> None:
    """Register the MLTCP congestion controls with the kernel, and show what is loaded.

    Programs can then select one with setsockopt(TCP_CONGESTION), and `mltcp attach` can switch
    running jobs. Loading itself changes no connection. `mltcp unload` undoes it. The kernel module
    always registers all congestion controls. Needs root.
    """
    given = {
        "slope": slope,
        "intercept": intercept,
        "burst_bytes": burst_bytes,
        "gap_s": gap_s,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    defaults = JobParams(**chosen) if chosen else None  # type: ignore[arg-type]
    kernel = get_backend(backend)
    if replace and names:
        raise click.UsageError("--replace replaces everything that is loaded, so it takes no NAME")
    if ensure and (replace or defaults is not None):
        raise click.UsageError("--ensure can't be combined with --replace or parameters")
    if kernel.name == "bpf" and not os.environ.get("MLTCP_ALLOW_SKIPPED_CALLS"):
        requirements.require_every_call(of_process_1=True)
    if replace:
        from mltcp_tools.live.attach.replacement import replace_build

        replace_build(kernel, defaults, say)
        status = kernel.status()
    elif ensure:
        from mltcp_tools.live.attach.replacement import ensure_build

        status = ensure_build(kernel, names or None, say)
    else:
        status = kernel.load(names or None, defaults)
    show_status(status, as_json)
    if status.backend == "bpf" and (warning := requirements.may_miscount()):
        say(warning)
    if not replace and (other := checks.other_build(kernel, status)):
        say(other)
