# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp lab profile`: what jobs send per iteration."""

from __future__ import annotations

import json
import math
from pathlib import Path

import click

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.options import RATE, list_option, output_file
from mltcp_tools.cli.text import examples, say


@click.command(
    epilog=examples(
        "mltcp lab profile runs/four-jobs",
        "mltcp lab profile runs/four-jobs -o jobs.yaml",
    )
)
@click.argument("source", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--variant",
    help="Variant of the run folder that the jobs are taken from.  [default: alone]",
)
@list_option("--job", "names", metavar="NAME,…", help="Jobs to show.  [default: all]")
@click.option(
    "--rate",
    type=RATE,
    help="Rate of the link, such as 10gbit; phases that exceed it in one direction are named."
    "  [default: the run's]",
)
@output_file("Write the profiles to this YAML file, for `mltcp plan score`.")
@click.option("--json", "as_json", is_flag=True, help="Print the profiles as JSON.")
def command(
    source: Path,
    variant: str | None,
    names: tuple[str, ...],
    rate: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Show what each job of a run folder sends in an iteration, and when.

    RUN is a folder of `mltcp lab record` or `mltcp testbed run`, or a YAML file of profiles to
    check. Bytes are TCP payload without retransmissions, counted separately for each direction.
    """
    from mltcp_tools.lab.planning.reading import read_source, write_profiles
    from mltcp_tools.lab.planning.text import profiles_json, render_profiles

    profiles, known_rate = read_source(source, variant)
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
    if as_json:
        document = profiles_json(profiles)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(render_profiles(profiles), nl=False)
