# SPDX-License-Identifier: BSD-2-Clause
"""Manual pages: one of `mltcp`, and one of each command below it, made of their `--help`.

    python -m mltcp_tools.cli.manual FOLDER

The packages contain them (scripts/build-tools-tree).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from mltcp_tools import __version__
from mltcp_tools.cli.main import COMMANDS, cli

_SETTINGS = {"max_content_width": 78, "terminal_width": 78, **cli.context_settings}


def pages() -> dict[str, str]:
    """Every manual page by its file's name."""
    ctx = click.Context(cli, info_name="mltcp", **_SETTINGS)
    found = {"mltcp.1": _page("mltcp", (cli.help or "").partition(".")[0], [("mltcp", ctx)])}
    for name, summary in COMMANDS.items():
        found[f"mltcp-{name}.1"] = _page(f"mltcp-{name}", summary, _helps(ctx, cli, name))
    return found


def _helps(
    parent: click.Context, group: click.Group, name: str
) -> Iterator[tuple[str, click.Context]]:
    """A command and all below it, with the words that call each."""
    command = group.get_command(parent, name)
    assert command is not None  # it is in the list
    ctx = click.Context(command, parent=parent, info_name=name, **_SETTINGS)
    yield ctx.command_path, ctx
    if isinstance(command, click.Group):
        for each in command.list_commands(ctx):
            yield from _helps(ctx, command, each)


def _page(title: str, summary: str, helps: Iterable[tuple[str, click.Context]]) -> str:
    lines = [
        f'.TH "{title.upper()}" 1 "" "mltcp-tools {__version__}" "MLTCP"',
        ".SH NAME",
        rf"{_escaped(title)} \- {_escaped(' '.join(summary.rstrip('.').split()))}",
    ]
    for words, ctx in helps:
        text = ctx.command.get_help(ctx).splitlines()
        lines += [f'.SH "{words.upper()}"', ".nf", *map(_escaped, text), ".fi"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    line = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    (folder,) = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text, encoding="utf-8")
