# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp cluster import` and `ask`: one's own cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted
from mltcp_tools.cli.options import BYTES, RATE, Quantity, list_option, output_file, shown_option
from mltcp_tools.cli.text import examples


def _typed(kind: Quantity) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback that keeps what was typed, and refuses what isn't such a quantity."""

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            kind.convert(value, param, ctx)
        return value

    return check


@click.command(
    "import",
    epilog=examples(
        "mltcp cluster import jobs.txt --network topology.conf --rate 100gbit -o mine.yaml",
        "mltcp cluster import jobs.json --network cluster.yaml --models models.yaml -o mine.yaml",
    ),
)
@click.argument("log", type=click.Path(path_type=Path))
@output_file("Write the workload to this YAML file, for `cluster ask`.  [default: stdout]")
@click.option(
    "--network",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Slurm's topology.conf, or YAML whose section `cluster` describes servers and links.",
)
@click.option(
    "--rate",
    callback=_typed(RATE),
    metavar="RATE",
    help="Rate of a server's link, such as 100gbit, unless FILE has it.",
)
@click.option(
    "--uplink",
    callback=_typed(RATE),
    metavar="RATE",
    help="Rate of a link between switches of Slurm's topology.  [default: as much as all servers"
    " below can send, so that uplinks are never the bottleneck]",
)
@click.option(
    "--queue",
    callback=_typed(BYTES),
    metavar="SIZE",
    help="Queue of a switch's port, unless FILE has it.  [default: 1MB]",
)
@list_option(
    "--models",
    "models",
    metavar="FILE,…",
    help="Bytes and computing time of models: YAML with a section `models`.",
)
@click.option(
    "--counters",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Prometheus's counters of servers' interfaces, from which the bytes of models that"
    " --models lacks are estimated.",
)
def import_(
    log: Path,
    output: Path | None,
    network: Path | None,
    rate: str | None,
    uplink: str | None,
    queue: str | None,
    models: tuple[str, ...],
    counters: Path | None,
) -> None:
    """Read the jobs of a scheduler's log into a workload.

    LOG is what sacct prints (TZ=UTC sacct -aPXD -o
    JobID,JobName,Submit,Start,End,State,AllocTRES,NodeList,Suspended, or sacct -aXD --json), a list
    of Kueue's workloads or of Volcano's jobs (kubectl get … -A -o json), or a CSV with name,
    submitted, start, end, gpus and, where known, nodes, model, iterations or iteration.
    The error names all missing inputs at once.
    """
    from mltcp_tools.clusters.own import importing
    from mltcp_tools.clusters.own.counters import measured, read_counters
    from mltcp_tools.clusters.own.findings import unsaid
    from mltcp_tools.clusters.own.logs import read_log
    from mltcp_tools.clusters.reading import parse_workload

    if uplink is not None and network is None:
        raise UsageError(
            "--uplink is the rate of links between switches; describe these with --network."
        )
    read = read_log(log)
    section, assumed = importing.network_of(network, rate, uplink, read)
    if queue is not None:
        section["queue"] = queue
    elif "queue" not in section:
        assumed.append("queue")
    cluster = importing.topology_of(section)
    known: dict[str, object] = {}
    for path in models:
        known = importing.models_of_table(Path(path)) | known
    sizes = []
    if models:
        names = ", ".join(Path(each).name for each in models)
        sizes.append(f"{counted(len(known), 'model')} of {names}")
    if counters is not None:
        kept = read_counters(counters)
        seen, read, guessed = measured(read, kept, cluster, known)
        known = seen | known
        assumed += ["iteration"] * guessed
        models_seen = f"{counted(len(seen), 'model')} measured by {counters.name}"
        sizes.append(f"{models_seen} ({kept.coverage(read.jobs)})")
    given = {"servers' links": rate, "uplinks": uplink, "queues": queue}
    inputs = importing.inputs(log, read, network, cluster, given, sizes)
    text = importing.document(read, section, known, assumed, inputs)
    made = parse_workload(text, f"What {log} makes")
    click.echo("\n".join([*inputs, *unsaid(made)]), err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text, encoding="utf-8")
    click.echo(f"Next: mltcp cluster ask {output}", err=True)


@click.command(
    epilog=examples("mltcp cluster ask mine.yaml", "mltcp cluster ask mine.yaml -o answers.html")
)
@click.argument("data", type=click.Path(path_type=Path))
@shown_option(
    "--draws", type=click.IntRange(2), default=5, help="Draws of paths and of random variation."
)
@output_file("Write one page of HTML.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def ask(data: Path, draws: int, output: Path | None, as_json: bool) -> None:
    """Compute what would help a recorded cluster.

    DATA is a file from `mltcp cluster import`. First come facts from the log itself: utilisation,
    waiting, and the most that the network can save. Then predicted durations against observed
    ones, which show how accurate the rest is. Then the savings of better placement and of faster
    uplinks, with 95 % intervals. Last come the ten worst conflicts: link, jobs, GPU hours lost, and
    a remedy for each.
    """
    from importlib.metadata import version

    from mltcp_tools.clusters.own.findings import findings, page

    if output is not None and not output.parent.is_dir():
        raise UsageError(f"There is no folder {output.parent} to write the page to.")
    sections, found = findings(data, draws, lambda what: click.echo(f"{what}…", err=True))
    if output is not None:
        output.write_text(page(str(data), version("mltcp-tools"), sections), encoding="utf-8")
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(s.text() for s in sections))
