# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab emulate`: periodic jobs over real TCP connections."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field
from typing import Any

import click
from click.shell_completion import CompletionItem

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.options import FRACTION, SECONDS, output_file, shown_option, with_options
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.experiments.fields import Declared, declarations, default_of
from mltcp_tools.lab.experiments.jobs import ExperimentJob

DEFAULT_PORT = 5301
DEFAULT_DURATION_S = 10.0


_PORT = click.IntRange(0, 65535)


class _Said(click.ParamType):  # type: ignore[type-arg]
    """The value of a job's field, read as in an experiment's file."""

    def __init__(self, known: Declared) -> None:
        self.name = known.kind
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            found = self._known.parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        if found is None:
            self.fail(f"{value!r} is for experiments, which draw it.", param, ctx)
        return found

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._known.words if word.startswith(incomplete)]


def _flat(kind: type[Any], before: str = "") -> Iterator[tuple[str, Field[Any], Declared]]:
    """The fields that are options, with their names; those of a mapping behind its own."""
    for each, known in declarations(kind):
        if known.option and known.inner is not None:
            yield from _flat(known.inner, f"{each.name}-")
        elif known.option:
            yield before + each.name, each, known


def _option(name: str, each: Field[Any], known: Declared) -> Callable[[Any], Any]:
    default = default_of(each)
    text = "" if default in (None, MISSING) else f"  [default: {known.shown(default)}]"
    # `bytes` is a function of Python's that no parameter should hide.
    return click.option(
        f"--{name}", f"job_{name}".replace("-", "_"), type=_Said(known), help=f"{known.help}{text}"
    )


def _read(options: dict[str, Any], kind: type[Any], before: str = "") -> dict[str, Any]:
    """The fields that the command line says."""
    found = {}
    for each, known in declarations(kind):
        if known.option and known.inner is not None:
            inner = _read(options, known.inner, f"{each.name}_")
            if inner:
                found[each.name] = _whole(known.inner, inner, f"--{each.name}-")
        elif known.option and options[f"job_{before}{each.name}"] is not None:
            found[each.name] = options[f"job_{before}{each.name}"]
    return found


def _whole(kind: type[Any], said: dict[str, Any], before: str) -> Any:
    for each, _ in declarations(kind):
        if default_of(each) is MISSING and each.name not in said:
            raise UsageError(f"{before}{next(iter(said))} needs a {before}{each.name}.")
    return kind(**said)


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
def server(
    port: int,
    bind: str | None,
    timeout: float,
    one_off: bool,
    cc: str | None,
) -> None:
    """Receive the bursts of any number of clients, in sequence or at the same time."""
    from mltcp_tools.lab.emulator.entry import run_server

    run_server(
        port,
        bind,
        timeout_s=timeout,
        one_off=one_off,
        cc=cc,
        log=lambda line: click.echo(line, err=True),
    )


@command.command()
@click.argument("host")
@shown_option(
    "--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, help="Port of the server."
)
@with_options([_option(*each) for each in _flat(ExperimentJob)])
@click.option("--iterations", type=click.IntRange(1), help="End after this many.")
@click.option(
    "--duration",
    type=SECONDS,
    help="Begin no iteration later than this.  [default: 10s, without --iterations]",
)
@shown_option("--seed", type=click.IntRange(0), default=1, help="Seed of the jitter.")
@click.option(
    "--period",
    type=SECONDS,
    help="Communicate once per this time, as `mltcp plan` says; bursts that are early wait.",
)
@click.option("--shift", type=SECONDS, help="Time from the start to the first slot; with --period.")
@click.option(
    "--realign",
    type=FRACTION,
    help="Take the next slot when late by more than this share of one; with --period.  [default:"
    " 5%]",
)
@click.option("--cc", metavar="NAME", help="Congestion control of the sending sockets.")
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
def client(**options: Any) -> None:
    """Run one periodic job against the server at HOST."""
    from mltcp_tools.lab.emulator.client import ClientOptions
    from mltcp_tools.lab.emulator.entry import run_client

    spec = _described(options)
    settings = ClientOptions(
        host=options["host"],
        port=options["port"],
        job=options["job"],
        timeout_s=options["timeout"],
        trace_s=options["trace"],
        interval_s=options["interval"],
    )
    run_client(spec, settings, output=options["output"], as_json=options["as_json"])


def _described(options: dict[str, Any]) -> JobSpec:
    """The job that the command line describes."""
    from mltcp_tools.lab.emulator.time_shift import TimeShift

    time_shifts = {
        field: options[name]
        for name, field in (("period", "period_s"), ("shift", "shift_s"), ("realign", "realign"))
        if options[name] is not None
    }
    if time_shifts and "period_s" not in time_shifts:
        raise UsageError("--shift and --realign need a --period.")
    said = _read(options, ExperimentJob)
    if missing := [f"--{name}" for name in ("bytes", "compute") if said.get(name) is None]:
        raise UsageError(f"The job's size is missing; give {' and '.join(missing)}.")
    unlimited = options["iterations"] is None and options["duration"] is None
    job = ExperimentJob(name=options["job"], **said)
    spec = job.spec(
        iterations=options["iterations"],
        duration_s=DEFAULT_DURATION_S if unlimited else options["duration"],
        seed=options["seed"],
        start_delay=job.start or 0.0,
        cc=options["cc"],
    )
    return dataclasses.replace(spec, time_shifts=TimeShift(**time_shifts) if time_shifts else None)
