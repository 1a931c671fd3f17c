"""`mltcp profile`: what jobs send per iteration."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("source", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--arm", help="Arm of a run folder to take the jobs from.  [default: alone]")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the profiles to this YAML file, which `mltcp plan` reads.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(source: Path, arm: str | None, output: Path | None, as_json: bool) -> None:
    """Show what the jobs of RUN send in an iteration, and when.

    RUN is a folder of `mltcp record` or `mltcp testbed run`, or a YAML file of profiles, which is
    checked.
    """
    from mltcp_tools.planning.reading import read_source, write_profiles
    from mltcp_tools.planning.text import profiles_json, render_profiles

    profiles, rate = read_source(source, arm)
    if output is not None:
        output.write_text(write_profiles(profiles, rate), encoding="utf-8")
        click.echo(f"Wrote {output}; see which jobs fit with: mltcp plan score {output}", err=True)
    if as_json:
        document = profiles_json(profiles)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(render_profiles(profiles), nl=False)
