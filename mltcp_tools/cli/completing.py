# SPDX-License-Identifier: BSD-2-Clause
"""The names that a shell may offer where a command takes one; nothing where that can't be told.

Completion runs while a user types, with that user's rights: it prints nothing and fails silently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from mltcp_tools.base.errors import MltcpError

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def offering(names: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Offers these names, for each part of a list with commas."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, part = incomplete.rpartition(",")
        with contextlib.suppress(MltcpError, OSError):
            return [
                CompletionItem(before + comma + name)
                for name in dict.fromkeys(names(ctx))
                if name.startswith(part)
            ]
        return []

    return complete


def _jobs(ctx: click.Context) -> Iterable[str]:
    from mltcp_tools.kernel.backends import get_backend
    from mltcp_tools.live.attach.targets import attached_jobs

    yield from attached_jobs()[0].values()
    yield from (job.name for job in get_backend(ctx.params.get("backend") or "auto").jobs())


def _experiments(ctx: click.Context) -> Iterable[str]:
    from mltcp_tools.lab.experiments.reading import shipped_experiments, shipped_matrices

    return [*shipped_experiments(), *shipped_matrices()]


def _files_too(offer: Completer) -> Completer:
    """Names, and files of the shell's own finding where none begins like that."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return offer(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]

    return complete


JOBS = offering(_jobs)
EXPERIMENTS = _files_too(offering(_experiments))
