# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp unload`: take the congestion controls out of the kernel."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from mltcp_tools.base.errors import MltcpError, UnknownError
from mltcp_tools.base.installation import how_to_bring
from mltcp_tools.cli.options import shown_option
from mltcp_tools.cli.text import examples, say
from mltcp_tools.kernel.backends import AUTO, BACKENDS, get_backend, struct_ops
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.host.locks import RUN_DIR


@click.command(epilog=examples("mltcp unload", "mltcp unload --everything --dry-run"))
@shown_option(
    "--backend",
    type=click.Choice((AUTO, *BACKENDS)),
    default=AUTO,
    help="Kernel part to unload: the eBPF programs (bpf) or the kernel module (kmod); auto: both.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Unload although sockets or processes use MLTCP. These sockets continue as their base"
    " algorithm; the kernel module stays until they close (exit code 4).",
)
@click.option(
    "--everything",
    is_flag=True,
    help="Remove all of MLTCP from this host: stop its programs, restore defaults, switch every"
    " socket back, unload both backends, remove pins and records, and check the result.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="With --everything: show what would be removed, and change nothing.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON object: what was removed, and what is left.",
)
def command(backend: str, force: bool, everything: bool, dry_run: bool, as_json: bool) -> None:
    """Remove the MLTCP congestion controls from the kernel, with all jobs and tags.

    Refuses while a socket, a process or a default of a network namespace uses them, and names it;
    --everything handles these, too. Needs root.
    """
    if dry_run and not everything:
        raise click.UsageError("--dry-run needs --everything")
    if everything:
        if force or backend != AUTO:
            raise click.UsageError("--everything excludes --force and --backend")
        _take_off(dry_run, as_json)
        return
    was_there = _there()
    chosen = [get_backend(backend)] if backend != AUTO else was_there or [get_backend()]
    left = sum(each.unload(force) for each in chosen)
    if as_json:
        names = [each.name for each in was_there]
        document = {"were_loaded": names, "sockets_that_run_on": left}
        click.echo(json.dumps(document))
        return
    if not was_there:
        click.echo("Nothing was loaded.", err=True)
    elif left:
        click.echo(
            f"Unregistered; {left} sockets keep their loaded code until they close.",
            err=True,
        )
    else:
        click.echo("Unloaded.", err=True)


def _take_off(dry_run: bool, as_json: bool) -> None:
    """Take everything off, and say what was done, or print it with what is left then."""
    from mltcp_tools.live.attach.removal import left_on_host, take_off

    done: list[str] = []
    try:
        take_off(done.append if as_json else say, dry_run, before=_testbeds)
    finally:
        if done and as_json:
            document = {"done": [] if dry_run else done, "left": left_on_host()}
            click.echo(json.dumps(document))


def _testbeds() -> Sequence[str]:
    """Remove what testbeds left; name it. Few hosts ever had one, or have the packages for it."""
    if not _left_by_testbeds():
        return []
    try:
        from mltcp_tools.lab.testbed.leftovers import remove_leftovers
    except ModuleNotFoundError as error:
        raise MltcpError(
            "Leftovers of testbeds stay until `mltcp testbed clean`, which needs the Python package"
            f" {error.name}; {how_to_bring('report')}."
        ) from error
    return remove_leftovers()


def _left_by_testbeds() -> bool:
    """Return whether a run is alive or was killed: it has a lock, and notes what it loaded."""
    folder = RUN_DIR / "testbed"
    noted = (each.stat().st_size > 0 for each in folder.glob("*.users"))
    return any(folder.glob("*.lock")) or any(noted)


def _there() -> list[Backend]:
    """The backends that the kernel has something of; UnknownError where that isn't known of any."""
    found, unknown = [], None
    for each in map(get_backend, BACKENDS):
        try:
            if each.is_present() or (each.name == "bpf" and struct_ops.any_left()):
                found.append(each)
        except UnknownError as error:
            unknown = error
    if unknown and not found:
        raise unknown
    return found
