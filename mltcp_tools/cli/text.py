"""How things are written in the commands' output."""

from __future__ import annotations

import click


def endpoint(address: str, port: int) -> str:
    """`10.0.0.1:80`, `[::1]:80`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def printable(text: str) -> str:
    """Text that others chose (names of processes and jobs), unable to drive the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def say(sentence: str) -> None:
    """To the standard error output, for people."""
    click.echo(printable(sentence), err=True)
