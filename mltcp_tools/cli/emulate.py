"""`mltcp emulate`: periodic jobs over real TCP connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from mltcp_tools.cli.options import BYTES, FRACTION, RATE, SECONDS, output_file, shown_option
from mltcp_tools.emulator.job import DIRECTIONS, MAX_BURSTS, MAX_FLOWS, JobSpec
from mltcp_tools.emulator.models import MODELS
from mltcp_tools.errors import UsageError

DEFAULT_PORT = 5301
DEFAULT_DURATION_S = 10.0


_PORT = click.IntRange(0, 65535)
_CONTROL_FD = click.option(
    "--control-fd",
    type=click.IntRange(0),
    metavar="N",
    help="Inherited AF_UNIX SOCK_SEQPACKET descriptor by which a parent process is in control.",
)


def _weights(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> tuple[int, ...] | None:
    try:
        return tuple(int(word) for value in values for word in value.split(",")) or None
    except ValueError:
        raise click.BadParameter("write whole numbers with commas, like 4,2,1,1.") from None


@click.group()
def command() -> None:
    """Emulate training jobs: compute, send a burst, and again."""


@command.command()
@shown_option(
    "--port", type=_PORT, default=DEFAULT_PORT, help="Port to listen on; 0 for any free one."
)
@click.option("--bind", metavar="ADDRESS", help="Listen on this address only.")
@shown_option(
    "--timeout",
    type=SECONDS,
    default="10s",
    help="Drop a client that owes data and is silent for this long.",
)
@click.option("--one-off", is_flag=True, help="End after the first client.")
@click.option(
    "--cc",
    metavar="NAME",
    help="Congestion control of this side. One that lives on ECN, such as dctcp, must be at both"
    " ends when a connection is made.",
)
@_CONTROL_FD
def server(
    port: int,
    bind: str | None,
    timeout: float,
    one_off: bool,
    cc: str | None,
    control_fd: int | None,
) -> None:
    """Receive the bursts of any number of clients, in sequence or at the same time."""
    from mltcp_tools.emulator.entry import run_server

    run_server(
        port,
        bind,
        timeout_s=timeout,
        one_off=one_off,
        cc=cc,
        control_fd=control_fd,
        log=lambda line: click.echo(line, err=True),
    )


@command.command()
@click.argument("host")
@shown_option("--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT)
@click.option("--bytes", "size", type=BYTES, help="Bytes per iteration, such as 2.5MB.")
@click.option("--compute", type=SECONDS, help="Compute time per iteration, such as 340ms.")
@click.option(
    "--model",
    type=click.Choice(sorted(MODELS)),
    help="Take --bytes and --compute from a published model; either can still be given.",
)
@click.option("--iterations", type=click.IntRange(1), help="End after this many.")
@click.option(
    "--duration",
    type=SECONDS,
    help="Begin no iteration later than this.  [default: 10s, without --iterations]",
)
@shown_option(
    "--jitter",
    type=FRACTION,
    default="0",
    help="Standard deviation of the compute time, such as 5%.",
)
@shown_option("--seed", type=click.IntRange(0), default=1, help="Seed of the jitter.")
@shown_option(
    "--flows",
    type=click.IntRange(1, MAX_FLOWS),
    default=1,
    help="Connections that each burst is split over.",
)
@click.option(
    "--split",
    callback=_weights,
    multiple=True,
    metavar="W,W,…",
    help="Split it in proportion to these weights, one per connection.  [default: evenly]",
)
@click.option(
    "--active",
    type=click.IntRange(1),
    help="How many connections carry a burst, in turn; the others idle.",
)
@click.option(
    "--chunk",
    type=BYTES,
    help="Send this much at a time, the next once as much has arrived; with --direction both.",
)
@click.option("--rate", type=RATE, help="Hand over no more than this while sending.")
@shown_option(
    "--bursts",
    type=click.IntRange(1, MAX_BURSTS),
    default=1,
    help="Rounds of compute and burst that each iteration is split into.",
)
@shown_option("--start-delay", type=SECONDS, default="0", help="Wait before the first iteration.")
@click.option(
    "--turn",
    type=SECONDS,
    help="Communicate once per this time, as `mltcp plan` says; bursts that are early wait.",
)
@click.option(
    "--shift", type=SECONDS, help="When the first turn begins after the start; with --turn."
)
@click.option(
    "--realign",
    type=FRACTION,
    help="Take the next turn when late by more than this share of one; with --turn.  [default: 5%]",
)
@click.option("--cc", metavar="NAME", help="Congestion control of the sending sockets.")
@shown_option(
    "--direction",
    type=click.Choice(DIRECTIONS),
    default="send",
    help="Which way the bytes go, seen from here; both: all of them, each way.",
)
@click.option(
    "--straggler-every",
    type=click.IntRange(1),
    metavar="N",
    help="Every N-th compute phase is slow.",
)
@shown_option(
    "--straggler-factor",
    type=float,
    default=2.0,
    help="How many times as long a slow compute phase takes.",
)
@shown_option("--job", default="job", help="Name in the result.")
@click.option(
    "--trace",
    type=SECONDS,
    help="Time between samples of the sockets' TCP state during bursts, at least 1ms.",
)
@shown_option("--interval", type=SECONDS, default="1s", help="Time between lines.")
@shown_option(
    "--timeout",
    type=SECONDS,
    default="10s",
    help="Give up on a server that is silent for this long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result document, nothing else.")
@output_file("Write the result document (JSON) to FILE.")
@_CONTROL_FD
def client(**options: Any) -> None:
    """Run one periodic job against the server at HOST."""
    from mltcp_tools.emulator.client import ClientOptions
    from mltcp_tools.emulator.control import Control
    from mltcp_tools.emulator.entry import run_client

    control = None if options["control_fd"] is None else Control(options["control_fd"])
    name, trace_s = options["job"], options["trace"]
    if control is not None and options["size"] is None and options["model"] is None:
        name, spec, trace_s = control.read_job()
    else:
        spec = _described(options)
    settings = ClientOptions(
        host=options["host"],
        port=options["port"],
        job=name,
        timeout_s=options["timeout"],
        trace_s=trace_s,
        interval_s=options["interval"],
    )
    run_client(
        spec,
        settings,
        output=options["output"],
        as_json=options["as_json"],
        control=control,
    )


@command.command(hidden=True)
@click.option("--job", metavar="NAME", help="For who looks at processes.")
@click.option("--control-fd", type=click.IntRange(0), metavar="N", required=True)
def rank(job: str | None, control_fd: int) -> None:
    """Run one rank of a job with a pattern, as a parent process describes it."""
    from mltcp_tools.emulator.control import Control
    from mltcp_tools.emulator.entry import run_rank

    del job
    run_rank(Control(control_fd))


def _described(options: dict[str, Any]) -> JobSpec:
    """The job that the command line describes."""
    from mltcp_tools.emulator.models import resolve
    from mltcp_tools.emulator.turns import Turns

    turns = {
        field: options[name]
        for name, field in (("turn", "turn_s"), ("shift", "shift_s"), ("realign", "realign"))
        if options[name] is not None
    }
    if turns and "turn_s" not in turns:
        raise UsageError("--shift and --realign need a --turn.")
    size, compute_s = resolve(options["model"], options["size"], options["compute"])
    unlimited = options["iterations"] is None and options["duration"] is None
    return JobSpec(
        bytes_per_iteration=size,
        compute_s=compute_s,
        iterations=options["iterations"],
        duration_s=DEFAULT_DURATION_S if unlimited else options["duration"],
        jitter=options["jitter"],
        seed=options["seed"],
        flows=options["flows"],
        bursts=options["bursts"],
        start_delay_s=options["start_delay"],
        cc=options["cc"],
        direction=options["direction"],
        straggler_every=options["straggler_every"],
        straggler_factor=options["straggler_factor"],
        weights=options["split"],
        active=options["active"],
        chunk=options["chunk"],
        rate_bps=options["rate"],
        turns=Turns(**turns) if turns else None,
    )
