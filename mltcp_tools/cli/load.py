# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp load`: register the congestion controls with the kernel."""

from __future__ import annotations

import click

from mltcp_tools.cli.options import GAP, TOTAL, backend_option
from mltcp_tools.cli.status import show_status
from mltcp_tools.cli.text import say
from mltcp_tools.kernel.backends import checks, get_backend
from mltcp_tools.kernel.backends.base import GAIN_MAX, JobParams
from mltcp_tools.kernel.congestion_controls import NAMES, STANDARD
from mltcp_tools.kernel.native import requirements


@click.command(
    epilog=f"NAME is one of {', '.join(NAMES)}. Without any, {', '.join(STANDARD)} are loaded,"
    " which every kernel has the bases of."
)
@click.argument("names", nargs=-1, type=click.Choice(NAMES), metavar="[NAME]...")
@backend_option
@click.option(
    "--slope",
    type=click.FloatRange(0, GAIN_MAX),
    help=f"Default slope of F for flows without a job.  [default: {JobParams.slope}]",
)
@click.option(
    "--intercept",
    type=click.FloatRange(0, GAIN_MAX),
    help=f"Default intercept of F for flows without a job.  [default: {JobParams.intercept}]",
)
@click.option(
    "--total",
    "total_bytes",
    type=TOTAL,
    metavar="auto|SIZE",
    help="Bytes of one burst of a flow without a job, such as 2.5MB.  [default: auto, each learns"
    " its own]",
)
@click.option(
    "--gap",
    "gap_s",
    type=GAP,
    metavar="auto|TIME",
    help="Time without an ACK that ends an iteration, such as 170ms.  [default: auto]",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Put this tool's build in place of the loaded one; connections, jobs and tags stay, and"
    " so do the defaults, unless the options above change them.",
)
@click.option(
    "--ensure",
    is_flag=True,
    help="Load what isn't loaded, replace another build or what sockets run of an earlier load, and"
    " do nothing where all is as this tool would have it: for units and packages.",
)
@click.option(
    "--allow-skipped-calls",
    is_flag=True,
    envvar="MLTCP_ALLOW_SKIPPED_CALLS",
    help="Load eBPF programs also where the kernel skips some of their calls (`mltcp doctor` says"
    " so): for tests.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON.")
def command(
    names: tuple[str, ...],
    backend: str,
    slope: float | None,
    intercept: float | None,
    total_bytes: int | None,
    gap_s: float | None,
    replace: bool,
    ensure: bool,
    allow_skipped_calls: bool,
    as_json: bool,
) -> None:
    """Register MLTCP's congestion controls (the usual, or those NAMEd) and print what is loaded.

    Any program can then choose one by setsockopt(TCP_CONGESTION). A flow behaves as its base
    algorithm until it has learned what its iterations look like, or is told. The kernel module
    always registers all of them.
    """
    given = {
        "slope": slope,
        "intercept": intercept,
        "total_bytes": total_bytes,
        "gap_s": gap_s,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    defaults = JobParams(**chosen) if chosen else None  # type: ignore[arg-type]
    kernel = get_backend(backend)
    if replace and names:
        raise click.UsageError("--replace replaces all that is loaded, so it takes no NAME")
    if ensure and (replace or defaults is not None):
        raise click.UsageError("--ensure can't be combined with --replace or parameters")
    if kernel.name == "bpf" and not allow_skipped_calls:
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
