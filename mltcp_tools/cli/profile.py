# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab profile`: what jobs send per iteration."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import format_bytes
from mltcp_tools.cli.options import RATE, SECONDS, list_option, output_file
from mltcp_tools.cli.text import examples, say

if TYPE_CHECKING:
    from mltcp_tools.lab.profiling.profile import Profile


@click.command(
    epilog=examples(
        "mltcp lab profile runs/four-jobs -o jobs.yaml",
        "mltcp lab profile --pcap jobs.pcap --select gpt2=10.0.0.1,10.0.0.2 --select bert=:29500",
    )
)
@click.argument("source", metavar="[RUN]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--variant",
    help="Variant of the run folder that the jobs are taken from.  [default: alone]",
)
@list_option("--job", "names", metavar="NAME,…", help="Jobs to show.  [default: all]")
@click.option(
    "--pcap",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Packet capture to take the jobs from instead of RUN (pcap or pcapng, also gzipped).",
)
@click.option(
    "--select",
    "selected",
    multiple=True,
    metavar="NAME=WHERE",
    help="Connections of a job in the capture; repeatable. WHERE is a list of hosts at one end"
    " (10.0.0.1,10.0.0.2), a network (10.0.1.0/24), a port (:5001), or a host's port"
    " (10.0.0.1:5001).  [default: each sending host is a job]",
)
@click.option(
    "--rate",
    type=RATE,
    help="Rate of the link, such as 10gbit; phases that exceed it in one direction are named."
    "  [default: the run's]",
)
@click.option(
    "--near",
    type=SECONDS,
    help="Rough iteration time, within a fifth, such as 500ms.  [default: detected]",
)
@output_file("Write the profiles to this YAML file, for `mltcp plan score`.")
@click.option("--json", "as_json", is_flag=True, help="Print the profiles as JSON.")
def command(
    source: Path | None,
    variant: str | None,
    names: tuple[str, ...],
    pcap: Path | None,
    selected: tuple[str, ...],
    rate: float | None,
    near: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Show what each job sends in an iteration, and when, from a run folder or a packet capture.

    RUN is a folder of `mltcp lab record` or `mltcp testbed run`, or a YAML file of profiles to
    check. Bytes are TCP payload without retransmissions, counted separately for each direction.
    """
    from mltcp_tools.lab.planning.reading import read_source, write_profiles

    if (source is None) == (pcap is None):
        raise UsageError("Name either a RUN or a capture with --pcap.")
    known_rate = None
    if source is not None:
        if selected or near is not None:
            raise UsageError("--select and --near belong to --pcap.")
        profiles, known_rate = read_source(source, variant)
    elif pcap is not None:
        profiles = _from_capture(pcap, selected, near)
    if missing := sorted(set(names) - {profile.name for profile in profiles}):
        known = ", ".join(profile.name for profile in profiles)
        raise UsageError(f"There is no job {missing[0]!r}; there are: {known}.")
    profiles = [profile for profile in profiles if not names or profile.name in names]
    rate = known_rate if rate is None else rate
    for sentence in (each for profile in profiles for each in profile.too_fast(rate or math.inf)):
        say(sentence)
    if output is not None:
        output.write_text(write_profiles(profiles, rate), encoding="utf-8")
        say(f"Wrote {output}; see which jobs fit with: mltcp plan score {output}")
    # Imported only now: it takes memory that reading a capture needs.
    from mltcp_tools.lab.planning.text import profiles_json, render_profiles

    if as_json:
        document = profiles_json(profiles)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(render_profiles(profiles), nl=False)


def _from_capture(path: Path, selected: tuple[str, ...], near: float | None) -> list[Profile]:
    from mltcp_tools.lab.profiling.capture import read_capture
    from mltcp_tools.lab.profiling.from_capture import profiles_of_capture
    from mltcp_tools.lab.profiling.progress import FileBar
    from mltcp_tools.lab.profiling.selector import Selector

    with FileBar(path.name) as bar:
        capture = read_capture(path, [Selector.parse(each) for each in selected], bar.at)
    for size, what in (
        (capture.left_out, "belong to none of the jobs"),
        (capture.missing, "were sent but aren't in the capture"),
    ):
        if size:
            say(f"{format_bytes(size)} {what}.")
    profiles = profiles_of_capture(capture, near)
    for profile in profiles:
        servers = capture.servers[profile.name]
        if not selected and len(servers) > 1:
            say(
                f"{profile.name} sends to {len(servers)} ports; if these are several jobs, name"
                " each with --select NAME=HOST:PORT."
            )
    return profiles
