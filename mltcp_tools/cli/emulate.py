# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab emulate`: periodic jobs over real TCP connections."""

from __future__ import annotations

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.options import BYTES, FRACTION, SECONDS, shown_option
from mltcp_tools.cli.text import examples
from mltcp_tools.lab.emulator.job import DIRECTIONS, MAX_BURSTS, MAX_FLOWS, Direction

DEFAULT_PORT = 5301
DEFAULT_DURATION_S = 10.0


@click.group()
def command() -> None:
    """Emulate training jobs: compute, send a burst, and repeat."""


@command.command(epilog=examples("mltcp lab emulate server", "mltcp lab emulate server --cc dctcp"))
@shown_option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    help="TCP port to listen on; 0: any free one.",
)
@click.option("--bind", metavar="ADDRESS", help="Address to listen on.  [default: all]")
@shown_option(
    "--timeout",
    type=SECONDS,
    default="10s",
    help="Time after which a silent client that owes data is dropped.",
)
@click.option(
    "--cc",
    metavar="NAME",
    help="Congestion control of this side; for dctcp, which needs ECN, name it on both sides."
    "  [default: the host's]",
)
def server(port: int, bind: str | None, timeout: float, cc: str | None) -> None:
    """Receive the bursts of any number of emulated jobs."""
    from mltcp_tools.lab.emulator.server import EmulatorServer

    receiver = EmulatorServer(
        port,
        bind,
        timeout_s=timeout,
        cc=cc,
        log=lambda line: click.echo(line, err=True),
    )
    receiver.serve()


@command.command(
    epilog=examples(
        "mltcp lab emulate client 10.0.1.2 --bytes 2.5MB --compute 170ms",
        "mltcp lab emulate client 10.0.1.2 --bytes 10MB --compute 1s --iterations 50 --cc mltcp",
    )
)
@click.argument("host")
@shown_option(
    "--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, help="TCP port of the server."
)
@click.option(
    "--bytes", "size", type=BYTES, required=True, help="Bytes per iteration, such as 2.5MB."
)
@click.option(
    "--compute",
    type=SECONDS,
    required=True,
    help="Compute time per iteration, such as 340ms.",
)
@shown_option(
    "--jitter", type=FRACTION, default="0%", help="Standard deviation of the compute time."
)
@shown_option(
    "--flows",
    type=click.IntRange(1, MAX_FLOWS),
    default=1,
    help="Connections that each burst is split over.",
)
@shown_option(
    "--bursts",
    type=click.IntRange(1, MAX_BURSTS),
    default=1,
    help="Rounds of compute and burst that each iteration is split into.",
)
@shown_option(
    "--direction",
    type=click.Choice(DIRECTIONS),
    default=DIRECTIONS[0],
    help="Direction of the bytes: send, or both (as many from each side at the same time).",
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    help="Number of iterations.  [default: as many as fit into --duration]",
)
@click.option(
    "--duration",
    type=SECONDS,
    help="Time after which no iteration begins, such as 60s.  [default: 10s, without --iterations]",
)
@shown_option("--seed", type=click.IntRange(0), default=1, help="Random seed of the jitter.")
@click.option(
    "--period",
    type=SECONDS,
    help="Time between the slots in which bursts begin, as `mltcp plan score` computes it."
    "  [default: bursts begin after computing]",
)
@click.option(
    "--shift",
    type=SECONDS,
    help="Time from the start to the first slot; needs --period.  [default: 0s]",
)
@click.option(
    "--cc", metavar="NAME", help="Congestion control of the sending sockets.  [default: the host's]"
)
@shown_option("--job", default="job", help="Name of the job in the result.")
@click.option(
    "--trace",
    type=SECONDS,
    help="Time between samples of TCP state in --json, at least 1ms.  [default: no samples]",
)
@click.option("--json", "as_json", is_flag=True, help="Print only the result, as JSON.")
def client(
    host: str,
    port: int,
    size: int,
    compute: float,
    jitter: float,
    flows: int,
    bursts: int,
    direction: Direction,
    iterations: int | None,
    duration: float | None,
    seed: int,
    period: float | None,
    shift: float | None,
    cc: str | None,
    job: str,
    trace: float | None,
    as_json: bool,
) -> None:
    """Run a periodic job: compute, send a burst, and repeat.

    HOST runs `mltcp lab emulate server`.
    """
    from mltcp_tools.lab.emulator.client import ClientOptions
    from mltcp_tools.lab.emulator.entry import run_client
    from mltcp_tools.lab.emulator.job import JobSpec
    from mltcp_tools.lab.emulator.time_shift import TimeShift

    if period is None and shift is not None:
        raise UsageError("--shift needs a --period.")
    if iterations is None and duration is None:
        duration = DEFAULT_DURATION_S
    spec = JobSpec(
        bytes_per_iteration=size,
        compute_s=compute,
        iterations=iterations,
        duration_s=duration,
        jitter=jitter,
        seed=seed,
        flows=flows,
        bursts=bursts,
        cc=cc,
        direction=direction,
        time_shifts=None if period is None else TimeShift(period, shift or 0.0),
    )
    run_client(spec, ClientOptions(host, port, job, trace_s=trace), as_json=as_json)
