# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp watch`: the attached jobs as they run."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence

import click

from mltcp_tools.base.columns import Cell, Column, Meaning, Row, clip
from mltcp_tools.base.units import format_seconds
from mltcp_tools.cli.options import SECONDS, backend_option, shown_option
from mltcp_tools.cli.text import examples, printable, queue_text, show_table
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.agent.metrics import parse_address
from mltcp_tools.live.observe.feed import job_document, looks
from mltcp_tools.live.observe.page import Page
from mltcp_tools.live.observe.view import Gain, JobView

_COLUMNS = (
    Column("JOB", left=True),
    Column("FLOWS", drop=3),
    Column("ITERATIONS", drop=4),
    Column("TIME"),
    Column("CHANGE"),
    Column("TO-BEST", drop=1),
    Column("OVERLAP"),
    Column("GAIN", drop=8),
    Column("QUEUE-MS", drop=6),
    Column("SOURCE", left=True, drop=5),
    Column("PERIOD", drop=2),
)
WEB = "127.0.0.1:9478"
"""The address of the page unless told."""

# Iterations that are longer by this share, or that overlap with others by this share, are worth a
# look; half of it is not.
_NOTABLE = 0.1
_BAD = 0.3


_NONE = "No job is attached, and no other flow has learned its iterations yet."


def _row(view: JobView) -> Row:
    known = view.metadata
    return (
        clip(printable(view.name), 20),
        str(view.flows),
        str(view.iterations),
        "-" if view.iteration_s is None else format_seconds(view.iteration_s),
        Cell("-" if view.change is None else f"{view.change:+.1%}", _judged(view.change)),
        "-" if view.ratio is None else f"{view.ratio:.2f}",
        Cell("-" if view.overlap is None else f"{view.overlap:.0%}", _judged(view.overlap)),
        _gain(view.gain),
        queue_text(view.queue_us, view.full_queue_us),
        "-" if known is None else known.source,
        "-" if known is None else format_seconds(known.period_s),
    )


def _gain(gain: Gain | None) -> Cell:
    """`+4.5% [2.8, 6.4]`, by the agent's standing proof; no interval where rounds are too few."""
    if gain is None:
        return Cell("-", "quiet")
    if gain.low is None or gain.high is None:
        return Cell(f"{gain.mean:+.1%}", "quiet")
    meaning: Meaning = "quiet"
    if gain.low * gain.high > 0:
        meaning = "good" if gain.mean > 0 else "bad"
    return Cell(f"{gain.mean:+.1%} [{100 * gain.low:.1f}, {100 * gain.high:.1f}]", meaning)


def _judged(share: float | None) -> Meaning:
    """Return the meaning of a share; the larger, the worse."""
    if share is None:
        return "quiet"
    if share > _BAD:
        return "bad"
    if share > _NOTABLE:
        return "warning"
    return "good" if share < _NOTABLE / 2 else ""


@click.command(epilog=examples("mltcp watch", "mltcp watch --once --json", "mltcp watch --web"))
@click.option("--once", is_flag=True, help="Print one table after --wait, and end.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print each table as a JSON array on one line."
)
@shown_option(
    "--wait", "wait_s", type=SECONDS, default="1s", help="Time before each table, such as 500ms."
)
@click.option(
    "--web",
    is_flag=False,
    flag_value=WEB,
    metavar="[ADDRESS]",
    help=f"Serve a live page at ADDRESS ({WEB} if none is given) instead, and print its URL with"
    " an access token. It is not encrypted.",
)
@backend_option
def command(
    once: bool,
    as_json: bool,
    wait_s: float,
    web: str | None,
    backend: str,
) -> None:
    """Show the iteration times of attached jobs as they run, and how much the jobs overlap.

    Flows without a job that have learned their iterations are shown as jobs, too. Ends with Ctrl-C.
    Jobs are seen from their start if `mltcp agent` or `mltcp attach --follow` runs, else from now.

    \b
    TIME      median of the last 10 iterations
    CHANGE    TIME compared with the first 5 iterations seen; for jobs attached with --cc observe
              first, compared with the time before MLTCP
    TO-BEST   TIME divided by the fastest tenth of the iterations
    OVERLAP   share of communication time in which another job of this host communicates
    GAIN      how much shorter iterations are than without MLTCP, with its 95 % interval; measured
              by an agent whose rules say `prove`
    QUEUE-MS  longest queueing delay of a flow, and that of a full queue
    PERIOD    iteration time that the job's flows use
    SOURCE    where PERIOD comes from: hooks, nccl, gloo or learned (from the flows)
    """
    from mltcp_tools.live.observe.watch import Watch

    if web is not None:
        with contextlib.suppress(KeyboardInterrupt):
            _serve(web, get_backend(backend), wait_s)
        return
    # Ctrl-C is how watching ends.
    with contextlib.suppress(KeyboardInterrupt), Watch(get_backend(backend)) as watch:
        if watch.blind:
            click.echo(f"Only jobs that are followed are seen: {watch.blind}", err=True)
        while True:
            watch.wait(wait_s)
            _show(watch.look(), as_json, screen=not (once or as_json) and sys.stdout.isatty())
            if once:
                return


def _serve(web: str, backend: Backend, wait_s: float) -> None:
    """Serve the page until a signal ends it."""
    with Page(parse_address(web)) as page:
        click.echo(page.url)
        for look in looks(backend, wait_s):
            page.show(look)


def _show(views: Sequence[JobView], as_json: bool, screen: bool) -> None:
    """One look; where it is one of many and for programs, on one line."""
    if as_json:
        click.echo(json.dumps([job_document(view) for view in views]))
        return
    if screen:
        click.clear()
    if views:
        show_table(_COLUMNS, [_row(view) for view in views])
    else:
        click.echo(_NONE)
