# SPDX-License-Identifier: BSD-2-Clause
"""Options that several commands share."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import (
    exact_bytes,
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
)
from mltcp_tools.cli import completing
from mltcp_tools.kernel.backends import AUTO, BACKENDS
from mltcp_tools.kernel.backends.base import GAIN_MAX, JobParams
from mltcp_tools.live.attach.selection import Target


class Quantity(click.ParamType):  # type: ignore[type-arg]
    """An option with a unit, read by one of the parsers of mltcp_tools.base.units.

    least, most: what it may be, in the parser's unit; `shown` is how the message writes them.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[object], Any],
        least: float = 0,
        most: float = math.inf,
        shown: Callable[[Any], str] = str,
    ) -> None:
        self.name = name
        self._parse = parse
        self._least, self._most, self._shown = least, most, shown

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | float:
        if isinstance(value, (int, float)):
            return value
        try:
            number: int | float = self._parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        if not self._least <= number <= self._most:
            least, most = self._shown(self._least), self._shown(self._most)
            limits = f"{least} to {most}" if math.isfinite(self._most) else f"{least} or more"
            self.fail(f"{value!r} is not {limits}.", param, ctx)
        return number


BYTES = Quantity("size", parse_bytes)
RATE = Quantity("rate", parse_rate)
SECONDS = Quantity("time", parse_seconds)
FRACTION = Quantity("fraction", parse_fraction)


def mtu_option(most: int) -> Callable[[Any], Any]:
    """The option --mtu, up to `most` bytes."""
    return shown_option(
        "--mtu",
        type=Quantity("size", parse_bytes, 576, most, exact_bytes),
        default="1500B",
        metavar="SIZE",
        help="Largest packet (MTU of the interfaces), such as 9000B.",
    )


def shown_option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """An option with a default that its help shows."""
    return click.option(*names, show_default=True, **settings)


def output_file(help: str) -> Callable[[Any], Any]:
    """The option -o of commands that write one file."""
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option("-o", "--output", type=kind, metavar="FILE", help=help)


def output_folder(help: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """The option -o of commands that write a folder. names: of the command's argument."""
    kind = click.Path(path_type=Path, file_okay=False)
    settings = {"metavar": "FOLDER"} | settings
    return click.option("-o", "--output", *names, type=kind, help=help, **settings)


def with_options(options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """Adds options that several commands have in common."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


SSH = "ssh -o BatchMode=yes -o LogLevel=ERROR -o ServerAliveInterval=10"
"""The command that reaches a host, unless MLTCP_SSH names another."""


def served(host: str, role: str, *words: str) -> list[str]:
    """Return the command line that serves this command's `role` on a host (`mltcp serve`)."""
    ssh, remote = _of_environment("MLTCP_SSH", SSH), _of_environment("MLTCP_REMOTE", "mltcp")
    return [*ssh, host, *remote, "serve", role, *words]


def _of_environment(name: str, default: str) -> list[str]:
    """The words of a command that the environment may name."""
    try:
        return shlex.split(os.environ.get(name) or default)
    except ValueError as error:
        raise UsageError(f"{name} in the environment is no command: {error}.") from None


def _burst(text: object) -> int:
    return 0 if text == "auto" else parse_bytes(text)


def _gap(text: object) -> float:
    return 0.0 if text == "auto" else parse_seconds(text)


BURST = Quantity("size", _burst)
GAP = Quantity("time", _gap)
"""Bytes of a burst of one flow, and seconds with nothing unacknowledged that end an iteration; 0:
`auto`."""


def flow_options(of: str) -> Callable[..., Any]:
    """The options that set parameters of flows. of: whose, as in `each flow of the job`."""
    return with_options(
        (
            click.option(
                "--burst-bytes",
                "burst_bytes",
                type=BURST,
                metavar="auto|SIZE",
                help=f"Bytes that {of} sends in one burst, such as 2.5MB; auto: learned, and the"
                " flow behaves as its base, such as Reno, until then.  [default: auto]",
            ),
            click.option(
                "--gap",
                "gap_s",
                type=GAP,
                metavar="auto|TIME",
                help="Time with nothing unacknowledged that ends an iteration, such as 170ms; auto:"
                " learned.  [default: auto]",
            ),
            click.option(
                "--slope",
                type=click.FloatRange(0, GAIN_MAX),
                help="Slope of F, which multiplies the growth of a flow's congestion window: F ="
                f" slope * (share of the burst sent) + intercept.  [default: {JobParams.slope}]",
            ),
            click.option(
                "--intercept",
                type=click.FloatRange(0, GAIN_MAX),
                help=f"Intercept of F.  [default: {JobParams.intercept}]",
            ),
        )
    )


def list_option(
    *names: str,
    allowed: Collection[str] | Callable[[], Collection[str]] = (),
    parse: Callable[[str], Any] = str,
    **settings: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that takes a list: with commas, given again, or both.

    allowed: what may be in it, if not anything; a function is called when that is needed. parse:
    makes an entry of its word, or raises UsageError. The command gets a tuple, each entry once.
    """

    def known() -> Collection[str]:
        return allowed() if callable(allowed) else allowed

    def read(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> tuple[Any, ...]:
        parts = (part.strip() for word in words for part in word.split(","))
        found = tuple(dict.fromkeys(part for part in parts if part))
        entries = known()
        for each in found:
            if entries and each not in entries:
                raise click.BadParameter(f"{each!r} is not one of {', '.join(entries)}.")
        try:
            return tuple(parse(each) for each in found)
        except UsageError as error:
            raise click.BadParameter(str(error)) from None

    if allowed:
        settings.setdefault("shell_complete", completing.offering(lambda ctx: known()))
    return click.option(*names, multiple=True, callback=read, **settings)


backend_option = shown_option(
    "--backend",
    type=click.Choice((AUTO, *BACKENDS)),
    default=AUTO,
    help="Implementation to use: eBPF programs (bpf) or kernel module (kmod). auto: the loaded"
    " one, else the module if it is installed for this kernel, else eBPF.",
)


TARGET_HELP = """\b
TARGET, which can be repeated:
  1234           process 1234
  tree:1234      process 1234 and all its descendants
  command:REGEX  processes whose command line contains this pattern
  train.py       the same as command:train.py
  cgroup:NAME    processes of a cgroup (Slurm job, container, unit): a path, or a glob
  port:29500     processes that listen on TCP port 29500 or are connected to it
  netns:NAME     processes in a network namespace: name, path or inode
  user:NAME      processes of a user: name or number
A process must match each kind of target given; 1234 and tree:1234 are one kind."""


def target_argument(required: bool) -> Callable[[Any], Any]:
    """The argument TARGET..., which a command gets as `target`."""

    def read(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> Target:
        return Target.parse(words)

    metavar = "TARGET..." if required else "[TARGET]..."
    return click.argument("target", nargs=-1, required=required, metavar=metavar, callback=read)


def jobs_and_targets(words: Sequence[str]) -> dict[str, list[str]]:
    """The targets of each job, by name, of words NAME and NAME=TARGET."""
    found: dict[str, list[str]] = {}
    for each in words:
        name, equals, target = each.partition("=")
        if not name or (equals and not target):
            raise UsageError(f"--job {each!r} is neither NAME nor NAME=TARGET.")
        found.setdefault(name, []).extend([target] if target else [])
    return found
