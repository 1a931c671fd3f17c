"""`mltcp fleet`: many hosts at once."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from itertools import zip_longest

import click

from mltcp_tools.cli.options import shown_option, ssh_options
from mltcp_tools.cli.text import printable, say, show_table
from mltcp_tools.columns import Cell, Column, Row
from mltcp_tools.errors import MltcpError
from mltcp_tools.live.fleet.published import (
    PublishedHost,
    PublishedJob,
    compared,
    fetch,
    read,
)
from mltcp_tools.live.fleet.reach import Remote, at_all
from mltcp_tools.units import counted, format_seconds

_SHOWN = (
    Column("HOST", left=True),
    Column("BUILD", left=True, drop=1),
    Column("JOB", left=True),
    Column("FLOWS", drop=3),
    Column("TIME", drop=2),
    Column("GAIN", drop=4),
    Column("ALARM", left=True),
)
_LEFT = (Column("HOST", left=True), Column("LEFT"))
_SHOW_AT_ONCE = 64
_SHOW_S = 30.0
_UNLOAD_S = 300.0


class _ByHosts(click.Group):
    """A group whose command `show` needn't be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ByHosts)
def command() -> None:
    """Look at the agents of many hosts, or take all of MLTCP off them.

    `mltcp fleet HOST...` is short for `mltcp fleet show HOST...`.
    """


@command.command()
@click.argument("hosts", nargs=-1, metavar="HOST...")
@click.option("--over-ssh", is_flag=True, help="Ask each agent at its own loopback, by ssh.")
@ssh_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object per host.")
@click.option("--raw", is_flag=True, help="Print the metrics of one host as they are.")
def show(
    hosts: tuple[str, ...], over_ssh: bool, ssh: str, mltcp: str, as_json: bool, raw: bool
) -> None:
    """Show which host runs which build, its jobs, what they gain, and what is wrong.

    HOST is the address at which `mltcp agent --metrics` publishes, HOST or HOST:PORT (9477), or
    with --over-ssh a name for ssh; without any it is this host. GAIN is of the agents' standing
    proof, TIME the mean iteration.

    The exit code is 1 where a host doesn't answer, has an alarm, or runs another build than most,
    so that a deployment can wait for 0.
    """
    remote = Remote(shlex.split(ssh), shlex.split(mltcp))

    def text_of(host: str) -> str:
        return remote.output(host, _SHOW_S, "fleet", "show", "--raw") if over_ssh else fetch(host)

    hosts = tuple(dict.fromkeys(hosts)) or ("127.0.0.1",)
    if raw:
        if len(hosts) > 1:
            raise click.UsageError("--raw is for one host")
        click.echo(text_of(hosts[0]), nl=False)
        return
    found = at_all(hosts, lambda host: read(host, text_of(host)), _SHOW_AT_ONCE)
    seen = compared(
        [
            PublishedHost(host, alarms=(f"unreachable: {each}",))
            if isinstance(each, MltcpError)
            else each
            for host, each in found
        ]
    )
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(each) for each in seen], indent=2))
    else:
        show_table(_SHOWN, [row for each in seen for row in _rows(each)])
    if bad := [each.host for each in seen if each.alarms]:
        raise MltcpError(
            f"{len(bad)} of {counted(len(seen), 'host')} need looking after: {', '.join(bad)}."
        )


def _rows(seen: PublishedHost) -> list[Row]:
    """The rows of a host: its jobs and, beside them, its alarms."""
    heads = [(seen.host, printable(f"{seen.backend} {seen.build}".strip() or "-"))]
    alarms = [Cell(printable(each), "bad") for each in seen.alarms]
    columns = zip_longest(heads, map(_job, seen.jobs), alarms)
    return [
        (*(head or ("", "")), *(job or ("", "", "", "")), alarm or "")
        for head, job, alarm in columns
    ]


def _job(job: PublishedJob) -> tuple[str, str, str, str]:
    gain = "-"
    if job.gain is not None:
        ends = ("?" if each is None else f"{100 * each:.1f}" for each in (job.low, job.high))
        gain = f"{job.gain:+.1%} [{', '.join(ends)}]"
    time = "-" if job.iteration_s is None else format_seconds(float(f"{job.iteration_s:.3g}"))
    return printable(job.name), str(job.flows), time, gain


@command.command()
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option("--dry-run", is_flag=True, help="Only count what is there.")
@shown_option(
    "--at-once", type=click.IntRange(1), default=16, help="Hosts that do it at the same time."
)
@ssh_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, an object per host.")
def unload(
    hosts: tuple[str, ...], dry_run: bool, at_once: int, ssh: str, mltcp: str, as_json: bool
) -> None:
    """Run `mltcp unload --everything` on each HOST, a name for ssh, and count what is left there.

    The exit code is 1 where something is left, or a host doesn't answer.
    """
    remote = Remote(shlex.split(ssh), shlex.split(mltcp))
    words = ["unload", "--everything", "--json", *(["--dry-run"] if dry_run else [])]

    def unloaded(host: str) -> dict[str, list[str]]:
        try:
            document = json.loads(remote.output(host, _UNLOAD_S, *words))
            return {name: [str(each) for each in document[name]] for name in ("done", "left")}
        except (ValueError, TypeError, KeyError):
            raise MltcpError("its answer can't be read; is its mltcp-tools older?") from None

    found = at_all(tuple(dict.fromkeys(hosts)), unloaded, at_once)
    if as_json:
        click.echo(
            json.dumps(
                [
                    {"host": host}
                    | ({"error": str(each)} if isinstance(each, MltcpError) else each)
                    for host, each in found
                ],
                indent=2,
            )
        )
    else:
        _show_left(found)
    unknown = [host for host, each in found if isinstance(each, MltcpError)]
    left = {host: len(each["left"]) for host, each in found if isinstance(each, dict)}
    if unknown or (sum(left.values()) and not dry_run):
        where = [host for host, count in left.items() if count and not dry_run]
        raise MltcpError(
            f"{counted(sum(left.values()), 'thing')} left, on {counted(len(where), 'host')}"
            f" ({', '.join(where) or 'none'}); without an answer: {', '.join(unknown) or 'none'}."
        )


def _show_left(found: Sequence[tuple[str, dict[str, list[str]] | MltcpError]]) -> None:
    rows: list[Row] = []
    for host, each in found:
        if isinstance(each, MltcpError):
            rows.append((host, Cell("?", "bad")))
        else:
            left = len(each["left"])
            rows.append((host, Cell(str(left), "bad" if left else "good")))
    show_table(_LEFT, rows)
    for host, each in found:
        for sentence in [str(each)] if isinstance(each, MltcpError) else each["left"]:
            say(f"{host}: {sentence}")
