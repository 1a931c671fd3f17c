# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp collectives aggregator`: run the aggregator of collectives on this host."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import click

from mltcp_tools.base.errors import BusyError, HostError, MltcpError, UsageError
from mltcp_tools.base.units import format_bytes
from mltcp_tools.cli.options import list_option, shown_option
from mltcp_tools.cli.text import examples
from mltcp_tools.kernel.host.programs import module_command

_START_S = 60.0  # the programs are compiled the first time
_DOWN_S = 10.0

name_option = shown_option("--name", default="default", help="Name of the aggregator on this host.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def command() -> None:
    """Run the aggregator, which sums up gradients in the network.

    Workers reach it at the addresses of its interfaces. Each sends its gradients once and receives
    the sum once, while a ring sends nearly twice as much.
    """


@command.command(
    epilog=examples(
        "mltcp collectives aggregator up -i eth1,eth2 --open",
        "mltcp collectives aggregator up -i eth1 --token-file /dev/stdin --foreground",
    )
)
@list_option(
    "-i",
    "--interface",
    "interfaces",
    required=True,
    metavar="NAME,…",
    help="Interfaces towards the workers.",
)
@shown_option("--port", type=click.IntRange(1, 65400), default=17749, help="UDP and TCP port.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="File with the secret that workers must have in MLTCP_AGGREGATOR_TOKEN.",
)
@click.option(
    "--open", "is_open", is_flag=True, help="Accept jobs without a token, from every host."
)
@name_option
@click.option("--foreground", is_flag=True, help="Run in the foreground, and log to stderr.")
@json_option
def up(
    interfaces: tuple[str, ...],
    port: int,
    token_file: Path | None,
    is_open: bool,
    name: str,
    foreground: bool,
    as_json: bool,
) -> None:
    """Start the aggregator in the background. Needs root."""
    from mltcp_tools.collectives.daemon import is_up, run_daemon
    from mltcp_tools.kernel.native.requirements import require_bpf_capabilities

    require_bpf_capabilities()
    _check_name(name)
    if is_open == bool(token_file):
        raise UsageError(
            "Name --token-file to accept workers that have the token, or --open to accept all."
        )
    if not foreground:
        if is_up(name):
            raise BusyError(
                f"An aggregator called {name!r} is up; `mltcp collectives aggregator down` ends it."
            )
        _start(name, as_json)
        return
    token = os.fsdecode(token_file.read_bytes().strip()) if token_file else ""
    if token_file and not token:
        raise UsageError(f"{token_file} is empty; write the workers' token into it.")
    os.chdir("/")  # keeps no file system busy; relative paths have been read
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    run_daemon(list(interfaces), name=name, port=port, token=token)


def _check_name(name: str) -> None:
    if not name.replace("-", "").isalnum() or len(name) > 32:
        raise UsageError(f"{name!r} can't name an aggregator; use letters, digits and -.")


def _start(name: str, as_json: bool) -> None:
    """Run this command in the foreground of another process; return when the aggregator answers."""
    from mltcp_tools.collectives.daemon import log_path

    file = log_path(name)
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with open(file, "a+", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        log.seek(0, os.SEEK_END)
        process = _start_with(log, name)
    if as_json:
        click.echo(json.dumps({"name": name, "process": process.pid, "log": str(file)}, indent=2))
    else:
        click.echo(f"The aggregator {name!r} is up (process {process.pid}); it logs to {file}.")


def _start_with(log: IO[str], name: str) -> subprocess.Popen[str]:
    begin = log.tell()
    process = subprocess.Popen(
        module_command("mltcp_tools.cli.main", *sys.argv[1:], "--foreground"),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    from mltcp_tools.collectives.daemon import is_up

    deadline = time.monotonic() + _START_S
    while not is_up(name):
        if process.poll() is not None:
            log.seek(begin)
            said = log.read().strip().rpartition("mltcp: error: ")[2]
            raise HostError(said or f"The aggregator ended with exit code {process.returncode}.")
        if time.monotonic() > deadline:
            process.terminate()
            raise MltcpError(f"The aggregator did not answer within {_START_S:g} s.")
        time.sleep(0.05)
    return process


@command.command(epilog=examples("mltcp collectives aggregator status"))
@name_option
@json_option
def status(name: str, as_json: bool) -> None:
    """Show the jobs, and the kernel's counts of their packets."""
    document = _ask(name, "status")
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    ports = ", ".join(document["interfaces"])
    used = sum(job["slots"] for job in document["jobs"])
    click.echo(
        f"{ports}, port {document['port']}; {used} of {document['slots']}"
        f" slots in use; {document['foreign']} foreign packets"
    )
    for job in document["jobs"]:
        click.echo(_job_line(job))


def _job_line(job: dict[str, Any]) -> str:
    counters = job["counters"]
    refused = sum(
        counters[each]
        for each in ("wrong_key", "wrong_sender", "malformed", "corrupt", "refused", "stale")
    )
    return (
        f"  {job['name']:<34} {job['joined']}/{job['workers']} workers, {job['slots']} slots,"
        f" {format_bytes(counters['bytes'])} in, {counters['results']} sums,"
        f" {counters['replies']} answers to one, {refused} refused"
    )


@command.command(epilog=examples("mltcp collectives aggregator down"))
@name_option
@json_option
def down(name: str, as_json: bool) -> None:
    """Stop the aggregator; its jobs go on with Gloo."""
    number = int(_ask(name, "status")["process"])
    process = os.pidfd_open(number)
    try:
        _ask(name, "down")
        # Its programs stay on the interfaces until it has ended.
        if not select.select([process], [], [], _DOWN_S)[0]:
            raise MltcpError(
                f"The aggregator {name!r} still runs {_DOWN_S:g} s after it was told to end."
            )
    finally:
        os.close(process)
    if as_json:
        click.echo(json.dumps({"name": name, "process": number}, indent=2))
    else:
        click.echo(f"The aggregator {name!r} is down.")


def _ask(name: str, word: str) -> dict[str, Any]:
    from mltcp_tools.collectives.daemon import ask

    _check_name(name)
    try:
        document = ask(name, word)
    except PermissionError:
        raise HostError("Only root may control the aggregator; use sudo.") from None
    if document is None:
        raise UsageError(
            f"No aggregator called {name!r} runs here; `mltcp collectives aggregator up` starts"
            f" one."
        )
    return document
