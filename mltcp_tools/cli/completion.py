# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp completion`: print the script that completes `mltcp` in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mltcp_tools.cli.text import examples


@click.command(
    epilog=examples(
        "mltcp completion fish >~/.config/fish/completions/mltcp.fish",
        then='\b\nIn ~/.bashrc or ~/.zshrc:\n  eval "$(mltcp completion bash)"\n'
        '  eval "$(mltcp completion zsh)"',
    )
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, jobs and experiments."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None  # the choice above names only shells click knows
    click.echo(completion_class(ctx.find_root().command, {}, "mltcp", "_MLTCP_COMPLETE").source())
