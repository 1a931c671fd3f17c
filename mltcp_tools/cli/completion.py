# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp completion`: print the script that completes `mltcp` in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    epilog="""\b
Put it to use with
  bash   eval "$(mltcp completion bash)"            in ~/.bashrc
  zsh    eval "$(mltcp completion zsh)"             in ~/.zshrc
  fish   mltcp completion fish > ~/.config/fish/completions/mltcp.fish"""
)
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in SHELL."""
    completion_class = get_completion_class(shell)
    assert completion_class is not None  # the choice above names only shells click knows
    click.echo(completion_class(ctx.find_root().command, {}, "mltcp", "_MLTCP_COMPLETE").source())
