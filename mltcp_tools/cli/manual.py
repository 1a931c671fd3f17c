# SPDX-License-Identifier: BSD-2-Clause
"""Manual pages, generated from the commands: `python -m mltcp_tools.cli.manual FOLDER` writes them.

The packages contain them (scripts/build-tools-tree). One page per command with its sub-commands,
and one that lists all commands. (click-man leaves out epilogs: exit codes and what a TARGET is.)
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from mltcp_tools import __version__
from mltcp_tools.cli.main import COMMANDS, ENVIRONMENT, EXIT_CODES, SECTIONS, cli

_VERBATIM = "\b"


def pages() -> dict[str, str]:
    """Every manual page by its file's name."""
    with click.Context(cli, info_name="mltcp", **cli.context_settings) as ctx:
        found = {"mltcp.1": _overview(ctx)}
        for name in COMMANDS:
            command = cli.get_command(ctx, name)
            assert command is not None  # it is in the list
            found[f"mltcp-{name}.1"] = _page(ctx, name, command)
    return found


def _overview(ctx: click.Context) -> str:
    """The page of `mltcp` itself."""
    lines = [
        _title("mltcp"),
        ".SH NAME",
        rf"mltcp \- {_inline((cli.help or '').partition('.')[0])}",
        ".SH SYNOPSIS",
        r"\fBmltcp\fR [\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]...",
        ".SH DESCRIPTION",
        *_text(cli.help or ""),
        *_options(ctx, cli),
    ]
    for title, names in SECTIONS.items():
        lines.append(f".SH {_quoted(title.upper())}")
        for name in names:
            lines += [".TP", rf"\fBmltcp\-{_escaped(name)}\fR(1)", _inline(COMMANDS[name])]
    lines += [".SH EXIT STATUS", *_text(_VERBATIM + EXIT_CODES)]
    return _joined([*lines, ".SH ENVIRONMENT", *_text(_VERBATIM + ENVIRONMENT)])


def _page(ctx: click.Context, name: str, command: click.Command) -> str:
    """The page of one command."""
    lines = [
        _title(f"mltcp-{name}"),
        ".SH NAME",
        rf"mltcp\-{_escaped(name)} \- {_inline(COMMANDS[name].rstrip('.'))}",
    ]
    with click.Context(command, parent=ctx, info_name=name) as own:
        lines += [".SH SYNOPSIS"]
        for words, each, _ in _leaves(own, f"mltcp {name}", command):
            lines += [rf"\fB{_escaped(words)}\fR {_usage(own, each)}", ".br"]
        lines += [".SH DESCRIPTION", *_text(command.help or "")]
        if isinstance(command, click.Group):
            for words, each, inside in _leaves(own, f"mltcp {name}", command):
                lines += [f".SH {_quoted(words.upper())}", *_text(each.help or "")]
                lines += [*_options(inside, each, ".SS"), *_epilog(each, ".SS")]
        else:
            lines += [*_options(own, command), *_epilog(command)]
    others = next(names for names in SECTIONS.values() if name in names)
    listed = ", ".join(rf"\fBmltcp\-{_escaped(each)}\fR(1)" for each in others if each != name)
    return _joined([*lines, ".SH SEE ALSO", rf"\fBmltcp\fR(1), {listed}"])


def _leaves(
    ctx: click.Context, words: str, command: click.Command
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """The commands that can be run, with the words that call each."""
    if not isinstance(command, click.Group):
        yield words, command, ctx
        return
    for name in command.list_commands(ctx):
        each = command.get_command(ctx, name)
        if each is not None and not each.hidden:
            with click.Context(each, parent=ctx, info_name=name) as inside:
                yield from _leaves(inside, f"{words} {name}", each)


def _usage(ctx: click.Context, command: click.Command) -> str:
    pieces = (piece for each in command.get_params(ctx) for piece in each.get_usage_pieces(ctx))
    return " ".join([r"[\fIOPTIONS\fR]", *(rf"\fI{_escaped(piece)}\fR" for piece in pieces)])


def _options(ctx: click.Context, command: click.Command, heading: str = ".SH") -> list[str]:
    lines = [f"{heading} OPTIONS"]
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
        if record is not None:
            lines += [".TP", rf"\fB{_escaped(record[0])}\fR", _inline(record[1])]
    return lines if len(lines) > 1 else []


def _epilog(command: click.Command, heading: str = ".SH") -> list[str]:
    return [f"{heading} EXAMPLES", *_text(command.epilog)] if command.epilog else []


def _text(text: str) -> list[str]:
    """Paragraphs; those that begin with \\b keep their lines."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).partition("\f")[0].strip("\n")):
        if paragraph.startswith(_VERBATIM):
            kept = paragraph.removeprefix(_VERBATIM).strip("\n").split("\n")
            lines += [".PP", ".nf", *map(_inline, kept), ".fi"]
        else:
            lines += [".PP", _inline(" ".join(paragraph.split()))]
    return lines


def _title(name: str) -> str:
    head = f'.TH {_quoted(name.upper())} 1 "" "mltcp-tools {__version__}" "MLTCP"'
    return f"{head}\n.ad l"  # long words can't be adjusted


def _inline(text: str) -> str:
    """A line of text; what stands between backticks is bold."""
    line = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _escaped(text))
    return rf"\&{line}" if line.startswith((".", "'")) else line


def _escaped(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (folder,) = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text, encoding="utf-8")
