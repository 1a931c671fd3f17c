# SPDX-License-Identifier: BSD-2-Clause
"""Groups whose commands are imported on first use; their summaries are known without that."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Collection, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """A group whose command NAME is `command` of the module `mltcp_tools.cli.NAME`.

    Help is quick, and a package missing for one command does not break the others. sections: title
    -> names and summaries of the commands, in the order in which help shows them. hidden: names
    of others, which help leaves out.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, str]],
        hidden: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self._hidden = hidden

    @property
    def summaries(self) -> dict[str, str]:
        """Summary of each command that isn't defined beside the group itself."""
        return {name: text for each in self.sections.values() for name, text in each.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        own = (name for name, command in self.commands.items() if not command.hidden)
        return [*self.summaries, *own]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*self.summaries, *self._hidden):
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"mltcp_tools.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:  # click suggests only commands that are imported
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near or "Did you mean" in error.message:
                raise
            said = f"{error.message.rstrip('.')}. Did you mean {near[0]!r}?"
            raise click.UsageError(said, ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = {name: each.get_short_help_str(80) for name, each in self.commands.items()}
        for title, entries in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([*entries.items(), *own.items()])
            own = {}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=summary)
            for name, summary in (self.summaries | dict.fromkeys(self.commands)).items()
            if name.startswith(incomplete)
        ]
        # Not the group's own way, which imports each command.
        return names + click.Command.shell_complete(self, ctx, incomplete)
