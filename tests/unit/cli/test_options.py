# SPDX-License-Identifier: BSD-2-Clause
"""Options mean one thing in every command: lists, files, names that a shell completes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from support.run_folders import make_run
from support.watched_backend import WatchedBackend

from mltcp_tools.cli.main import cli, main
from mltcp_tools.cli.options import list_option
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.attach.classify import ALL, KINDS


def walked(
    command: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Every command by the words that call it."""
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from walked(found, (*words, name))
    else:
        yield " ".join(words), command


COMMANDS = dict(walked(cli))


def options(command: click.Command) -> dict[str, click.Option]:
    return {
        name: each
        for each in command.params
        if isinstance(each, click.Option)
        for name in each.opts
    }


def test_lists_take_commas_and_repetition() -> None:
    @click.command()
    @list_option("--name", allowed=("a", "b", "c"))
    def command(name: tuple[str, ...]) -> None:
        assert name == ("a", "b", "c")

    command(["--name", "a,b", "--name", "c,a"], standalone_mode=False)
    with pytest.raises(click.BadParameter, match="'d' is not one of a, b, c"):
        command(["--name", "a,d"], standalone_mode=False)


def test_what_can_be_given_again_can_be_given_with_commas() -> None:
    for words, command in COMMANDS.items():
        for name, option in options(command).items():
            if option.multiple:
                assert option.callback is not None, f"mltcp {words} {name}"


NUMBERS = {
    *("--port", "--seed", "--iterations", "--repetitions", "--attempts", "--repeats", "--rounds"),
    *("--flows", "--bursts", "--levels", "--namespaces", "--inference", "--tenants", "--draws"),
    *("--slope", "--intercept", "--block", "--shorter"),
    "--held-out",
}
"""Options whose numbers have no unit: counts, seeds, factors, degrees."""


def test_every_number_with_a_unit_is_written_with_it() -> None:
    plain = (click.types.IntParamType, click.types.FloatParamType)
    for words, command in COMMANDS.items():
        for name, option in options(command).items():
            if isinstance(option.type, plain):
                assert name in NUMBERS, f"mltcp {words} {name}: give it a unit, or add it there"


@pytest.mark.parametrize("mtu", ["1500", "100B", "9217B", "1MB"])
def test_a_packet_size_has_a_unit_and_limits(mtu: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "four-jobs", "--mtu", mtu]) == 2
    said = capsys.readouterr().err
    assert ("no unit" if mtu == "1500" else "576B to 9216B") in said


def test_what_is_shown_is_there_for_programs_too() -> None:
    # They run until they are stopped, or print what is not data, or what they read as data.
    others = {
        "completion",
        "cluster import",
        "lab priorities",
        "lab emulate server",
    }
    for words, command in COMMANDS.items():
        assert words in others or "--json" in options(command), f"mltcp {words}"


def completed(*words: str) -> list[str]:
    """Return what a shell offers in the place of the last word."""
    completion = ShellComplete(cli, {}, "mltcp", "_MLTCP_COMPLETE")
    return [each.value for each in completion.get_completions(list(words[:-1]), words[-1])]


def test_names_are_completed() -> None:
    assert "four-jobs" in completed("simulate", "fo")
    assert "headline" in completed("testbed", "run", "he")
    assert completed("attach", "1", "--kind", "") == [ALL, *KINDS]
    assert completed("lab", "emulate", "client", "h", "--direction", "b") == ["both"]


def test_jobs_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = WatchedBackend([Job(1, "bert"), Job(2, "gpt2")], [], [])
    monkeypatch.setattr("mltcp_tools.kernel.backends.get_backend", lambda name: backend)
    monkeypatch.setattr("mltcp_tools.live.attach.targets.attached_jobs", lambda: ({}, []))
    assert completed("detach", "") == ["bert", "gpt2"]
    assert completed("lab", "record", "--job", "bert,g") == ["bert,gpt2"]


def test_a_run_is_profiled_for_the_jobs_that_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run")
    assert main(["lab", "profile", str(run), "--job", "job-1,job-3", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["jobs"]) == ["job-1", "job-3"]
    assert main(["lab", "profile", str(run), "--job", "job-9"]) == 2
    assert "There is no job 'job-9'" in capsys.readouterr().err


def examples(command: click.Command) -> list[list[str]]:
    """The command lines that a command's help ends with."""
    _, _, shown = (command.epilog or "").partition("\b\nExamples:\n")
    return [shlex.split(line) for line in shown.partition("\n\n")[0].splitlines()]


@pytest.mark.parametrize("words", COMMANDS)
def test_help_ends_with_examples_that_parse(words: str) -> None:
    lines = examples(COMMANDS[words])
    assert 1 <= len(lines) <= 3
    for line in lines:
        if ">" in line[-1]:
            line = line[:-1]
        line = line[line.index("mltcp") :]  # which another program may start
        assert line[: 1 + len(words.split())] == ["mltcp", *words.split()]
        ctx, command = click.Context(cli), cli
        rest = line[1:]
        while isinstance(command, click.Group):
            name, command, rest = command.resolve_command(ctx, rest)
        command.make_context(name, rest, parent=ctx, resilient_parsing=False)
