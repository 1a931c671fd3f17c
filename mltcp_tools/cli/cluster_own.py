# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp cluster import`, `replay` and `ask`: one's own cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted, parse_bytes, parse_rate
from mltcp_tools.cli.options import output_file, shown_option

if TYPE_CHECKING:
    from mltcp_tools.clusters.workload import Workload


@click.command("import")
@click.argument("log", type=click.Path(path_type=Path))
@output_file("Write the workload to this YAML file, for `cluster replay` and `ask`.")
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML with a section `cluster`: its servers and links.",
)
@click.option(
    "--topology", type=click.Path(path_type=Path), metavar="FILE", help="Slurm's topology.conf."
)
@click.option("--rate", help="Rate of a server's link, as 100gbit; needed where no --cluster says.")
@click.option(
    "--uplink",
    metavar="RATE",
    help="Rate of a link between switches, with --topology.  [default: as much as all servers below"
    " send, so that nothing is said of uplinks]",
)
@click.option(
    "--queue",
    metavar="BYTES",
    help="Queue of a switch's port, where no --cluster says it.  [default: 1MB]",
)
@click.option(
    "--models",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML with a section `models`: bytes and computing time of models by job name.",
)
@click.option(
    "--profiles",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The same from `mltcp lab profile -o`.",
)
@click.option(
    "--recorded",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The same, and jobs' iterations, from what `mltcp lab record` or a run wrote.",
)
@click.option("--variant", help="The variant of a run whose iterations jobs had.")
def import_(
    log: Path,
    output: Path | None,
    cluster: Path | None,
    topology: Path | None,
    rate: str | None,
    uplink: str | None,
    queue: str | None,
    models: Path | None,
    profiles: Path | None,
    recorded: Path | None,
    variant: str | None,
) -> None:
    """Read the jobs of a scheduler's LOG.

    LOG is Slurm's (TZ=UTC sacct -aPXD -o
    JobID,JobName,Submit,Start,End,State,AllocTRES,NodeList, or sacct -aXD --json), a list of
    Kueue's workloads or Volcano's jobs (kubectl get … -o json), or a CSV with name, submitted,
    start, end, gpus and, where known, nodes, model, iterations or iteration. Jobs are of one model
    whose names differ in a number that counts them. What is missing is asked for at once.
    """
    from mltcp_tools.clusters.own import importing, page
    from mltcp_tools.clusters.own.logs import read_log
    from mltcp_tools.clusters.own.slurm import read_conf
    from mltcp_tools.clusters.workload import parse_workload
    from mltcp_tools.lab.planning.reading import read_source

    if output is None:
        raise UsageError("name the file to write with -o.")
    if cluster is not None and (topology, rate, uplink, queue) != (None,) * 4:
        raise UsageError(
            "--cluster describes the whole network; leave out --topology, --rate, --uplink and"
            " --queue, or it."
        )
    if uplink is not None and topology is None:
        raise UsageError("--uplink is of links between switches; name these with --topology.")
    for name, value, parse in (
        ("--rate", rate, parse_rate),
        ("--uplink", uplink, parse_rate),
        ("--queue", queue, parse_bytes),
    ):
        if value is not None:
            try:
                parse(value)
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from None
    read = read_log(log)
    assumed = []
    if cluster is not None:
        section, described_topology = importing.cluster_of(cluster)
        importing.require_places(described_topology, read.jobs, cluster)
    elif rate is None:
        raise UsageError(
            "nothing says how fast servers' links are: give --rate, as 100gbit, or --cluster."
        )
    elif topology is not None:
        gpus = importing.gpus_of_servers(read.jobs)
        section = read_conf(topology, rate, uplink, gpus)
        assumed += ["uplink"] if uplink is None else []
    else:
        section = importing.one_switch(read.jobs, rate)
        assumed.append("topology")
    if queue is not None:
        section["queue"] = queue
    elif cluster is None:
        assumed.append("queue")
    known = {} if models is None else importing.models_of_table(models)
    if profiles is not None:
        known |= importing.models_of_profiles(read_source(profiles)[0], read)
    if recorded is not None:
        described, read = importing.recorded(recorded, variant, read)
        known |= described
    text = importing.document(read, section, known, assumed)
    made = parse_workload(text, f"What {log} makes", share=0.5)
    output.write_text(text, encoding="utf-8")
    left_out = "".join(f"; left out: {n} {reason}" for reason, n in read.left_out.items())
    click.echo(
        "".join(f"{each}\n" for each in (*read.notes, *page.unsaid(made)))
        + f"{counted(len(read.jobs), 'job')}{left_out}. Next:\n"
        + f"mltcp cluster {'ask' if made.shared else 'replay'} {output}",
        err=True,
    )


def _workload(data: Path, trace: str | None, share: float | None = None) -> Workload:
    """The workload of DATA; a UsageError that says so where that is a log. share: of an iteration
    that is communication, where nothing says it."""
    from mltcp_tools.clusters.own.logs import read_log
    from mltcp_tools.clusters.traces import read_workload

    try:
        return read_workload(data, trace, share=share)
    except UsageError as error:
        try:
            read_log(data)
        except UsageError:
            raise error from None
        raise UsageError(
            f"{data} is a log; `mltcp cluster import {data} -o data.yaml` makes of it what this"
            " command reads."
        ) from None


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@shown_option(
    "--treatment", "how", default="reno", help="Rule by which jobs shared links, as for run."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def replay(data: Path, how: str, as_json: bool) -> None:
    """Predict the recorded jobs of DATA, and hold that against what was observed.

    Computing times of models are fitted to the first half of each model's jobs; the other half says
    how far to trust this model of the cluster.
    """
    from mltcp_tools.clusters.own.page import render_trust, unexplained, unsaid
    from mltcp_tools.clusters.own.replay import calibrated, compare, error, trust
    from mltcp_tools.clusters.rules import treatment

    now = treatment(how)
    workload = _workload(data, None)
    if not workload.observed:
        raise UsageError(
            f"{data} has no job that was observed; make it with `mltcp cluster import`."
        )
    workload, held_out = calibrated(workload, now)
    compared = compare(workload, held_out, now)
    found = trust(compared)
    if as_json:
        document = {
            "schema": "mltcp-cluster-replay/1",
            "models": [vars(each) for each in found],
            "error": error(compared),
            "jobs": [
                {
                    "name": each.job.name,
                    "model": each.job.model.name,
                    "predicted_s": each.predicted_s,
                    "observed_s": each.observed_s,
                    "held_out": each.held_out,
                }
                for each in compared
            ],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        sentences = [*unsaid(workload), *unexplained(compared)]
        click.echo(render_trust(found, sentences), nl=False)


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--workload",
    "trace",
    metavar="KIND:FILE",
    help="Take the jobs from a public trace, as for run.",
)
@click.option("--jobs", type=click.IntRange(1), help="Only the first N jobs.")
@shown_option(
    "--treatment",
    "how",
    type=click.Choice(["reno", "mltcp"]),
    default="reno",
    help="Congestion control that jobs run over now.",
)
@shown_option("--draws", type=click.IntRange(2), default=5, help="Of paths and luck.")
@output_file("Write one page of HTML.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def ask(
    data: Path,
    trace: str | None,
    jobs: int | None,
    how: str,
    draws: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Ask what would help the cluster of DATA: places, uplinks, sums of gradients in the network.

    DATA is what `mltcp cluster import` wrote, or any workload. First comes how far to trust the
    answers, then each with the share of GPU hours that it saves, its interval, and the most that
    any network could save. Where nothing says how long jobs compute, there is an answer for each of
    several shares of communication.
    """
    import dataclasses
    from importlib.metadata import version

    from mltcp_tools.clusters.own import page
    from mltcp_tools.clusters.own.ask import SHARES
    from mltcp_tools.clusters.own.ask import ask as answers_of
    from mltcp_tools.clusters.own.replay import calibrated, compare, error, trust
    from mltcp_tools.clusters.rules import treatment

    if output is not None and not output.parent.is_dir():
        raise UsageError(f"{output.parent} is no folder to write the page to.")

    def given(share: float) -> Workload:
        found = _workload(data, trace, share)
        return dataclasses.replace(found, jobs=found.jobs[:jobs])

    workload = given(SHARES[0])
    unknown = bool(workload.shared)
    workload, held_out = calibrated(workload, treatment(how))
    # Beside jobs whose communication is unknown nothing can be predicted, either.
    told = workload.observed and not unknown
    compared = compare(workload, held_out, treatment(how)) if told else []
    found = trust(compared)
    sentences = [*page.unsaid(workload), *page.unexplained(compared)]
    if not as_json:
        click.echo(page.render_trust(found, sentences))

    def said(question: str) -> None:
        click.echo(f"{question}…", err=True)

    by_share = []
    for share in SHARES if unknown else (None,):
        asked = workload if share is None else calibrated(given(share), treatment(how))[0]
        by_share.append(answers_of(asked, how, error(compared), draws, said, share))
    answers = [answer for question in zip(*by_share, strict=True) for answer in question]
    if output is not None:
        source = str(data) if trace is None else f"{data}, {trace}"
        text = page.page(
            source, version("mltcp-tools"), len(workload.jobs), found, answers, sentences
        )
        output.write_text(text, encoding="utf-8")
    if as_json:
        document = {
            "schema": "mltcp-cluster-ask/2",
            "error": error(compared),
            "notes": sentences,
            "answers": [each.to_json() for each in answers],
        }
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(page.render_answers(answers), nl=False)
