"""The names that a shell may offer where a command takes one; nothing where that can't be told.

Completion runs while a user types, with that user's rights: it prints nothing and fails silently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from mltcp_tools.errors import MltcpError

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
    from mltcp_tools.lab.experiments.reading import shipped_experiments

    return shipped_experiments()


def _matrices(ctx: click.Context) -> Iterable[str]:
    from mltcp_tools.lab.experiments.reading import shipped_matrices

    return shipped_matrices()


def _either(ctx: click.Context) -> Iterable[str]:
    return [*_experiments(ctx), *_matrices(ctx)]


def _named(ctx: click.Context) -> str:
    """The experiment or matrix that stands on the command line."""
    # click doesn't get to arguments where an option lacks its value, which is being typed.
    named = ctx.params.get("experiment") or ctx.params.get("matrix")
    return str(named or next(iter(ctx.args), ""))


def _arms(ctx: click.Context) -> Iterable[str]:
    from mltcp_tools.lab.experiments.matrix import find_matrix, is_matrix, load_matrix
    from mltcp_tools.lab.experiments.reading import find_either, load_experiment

    name = _named(ctx)
    if not is_matrix(name):
        yield from (arm.name for arm in load_experiment(find_either(name)).arms)
        return
    for experiment in load_matrix(find_matrix(name)).mixes.values():
        yield from (arm.name for arm in experiment.arms)


def _mixes(ctx: click.Context) -> Iterable[str]:
    from mltcp_tools.lab.experiments.matrix import find_matrix, load_matrix

    return load_matrix(find_matrix(_named(ctx))).mixes


def _arms_of_run(ctx: click.Context) -> Iterable[str]:
    from mltcp_tools.lab.runs.described import read_experiment

    named = ctx.params.get("source") or ctx.params.get("jobs")
    run = named or next(iter(ctx.args), None)
    if run is None:
        return ()
    return ["alone", *read_experiment(Path(run) / "experiment.yaml", []).arms]


def _files_too(offer: Completer) -> Completer:
    """Names, and files of the shell's own finding where none begins like that."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return offer(ctx, param, incomplete) or [CompletionItem(incomplete, type="file")]

    return complete


JOBS = offering(_jobs)
EXPERIMENTS = _files_too(offering(_either))
MATRICES = _files_too(offering(_matrices))
ARMS = offering(_arms)
MIXES = offering(_mixes)
ARMS_OF_RUN = offering(_arms_of_run)
