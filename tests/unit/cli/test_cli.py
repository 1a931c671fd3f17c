# SPDX-License-Identifier: BSD-2-Clause
"""The frame of the `mltcp` command: help, exit codes, error lines, completion."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

import mltcp_tools
from mltcp_tools.base.errors import BusyError, HostError, MltcpError, UsageError
from mltcp_tools.cli import lazy
from mltcp_tools.cli.main import COMMANDS, main

MLTCP = [sys.executable, "-m", "mltcp_tools.cli.main"]


@pytest.fixture
def raising(monkeypatch):
    """Make `mltcp report` raise what the test asks for; the rest of the frame is real."""

    def install(error):
        @click.command()
        def command():
            raise error

        module = ModuleType("mltcp_tools.cli.report")
        module.command = command
        monkeypatch.setitem(sys.modules, "mltcp_tools.cli.report", module)

    monkeypatch.delenv("MLTCP_DEBUG", raising=False)
    return install


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_every_command_and_exit_code(option, capsys):
    assert main([option]) == 0
    out = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert name in out
        assert summary in out
    for code in ("0 ", "1 ", "2 ", "3 ", "4 ", "130 "):
        assert f"\n    {code}" in out


def test_help_and_version_import_no_command():
    program = (
        "import sys; from mltcp_tools.cli.main import main; main(['--help']); main(['--version']);"
        "print([m for m in sys.modules if m.startswith('mltcp_tools.cli.')"
        " or m in ('numpy', 'pandas', 'matplotlib', 'pyroute2', 'bcc')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == "['mltcp_tools.cli.lazy', 'mltcp_tools.cli.main']"


def test_help_and_version_are_words_too(capsys):
    for words in (["--help"], ["testbed", "run", "--help"], ["--version"]):
        assert main(words) == 0
        expected = capsys.readouterr().out
        assert main([words[-1].strip("-"), *words[:-1]]) == 0
        assert capsys.readouterr().out == expected
    assert main(["help", "nope"]) == 2
    assert "No such command 'nope'" in capsys.readouterr().err


def test_commands_in_the_agents_templates_exist(capsys):
    folder = Path(mltcp_tools.__file__).parent / "live" / "agent"
    typed = re.compile(r'@MLTCP@"?((?: [a-z]+\b)+)')
    files = [each for each in folder.rglob("*") if each.suffix in ("", ".service")]
    found = [
        words.split()
        for each in files
        if each.is_file()
        for words in typed.findall(each.read_text())
    ]
    assert len(found) >= 3, found
    for words in found:
        assert main([*words, "--help"]) == 0, words


def test_no_command_shows_help_and_is_a_usage_error(capsys):
    assert main([]) == 2
    assert "Operating:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["nope"], "mltcp: error: No such command 'nope'; try `mltcp --help`."),
        (
            ["lab", "profle"],
            "mltcp: error: No such command 'profle'. Did you mean 'profile'?; try `mltcp lab"
            " --help`.",
        ),
        (
            ["completion", "tcsh"],
            "mltcp: error: Invalid value for 'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish';"
            " try `mltcp completion --help`.",
        ),
    ],
)
def test_wrong_usage_is_one_line(args, expected, capsys):
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    # Versions of click differ in quoting names.
    assert captured.err.replace("'", "") == expected.replace("'", "") + "\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MltcpError("It broke."), 1, "It broke."),
        (UsageError("It broke."), 2, "It broke."),
        (HostError("It broke."), 3, "It broke."),
        (BusyError("It broke."), 4, "It broke."),
        (click.FileError("a.yaml", hint="is a folder"), 1, "a.yaml"),
        (PermissionError(errno.EACCES, "Denied", "/some/file"), 1, "/some/file: Denied."),
        (OSError(errno.ENOSPC, "No space"), 1, "No space."),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_are_one_line_with_their_exit_code(raising, capsys, error, code, said):
    raising(error)
    assert main(["report"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.lstrip().startswith("mltcp: error: ")
    assert said in captured.err
    assert captured.err.strip().count("\n") == 0


def test_unexpected_error_asks_for_a_report(raising, capsys, monkeypatch):
    raising(ZeroDivisionError("by zero"))
    assert main(["report"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ZeroDivisionError: by zero" in err
    assert "MLTCP_DEBUG=1" in err
    monkeypatch.setenv("MLTCP_DEBUG", "1")
    assert main(["report"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_missing_package_names_it(monkeypatch, capsys):
    def no_pandas(name):
        raise ModuleNotFoundError("No module named 'pandas.core'", name="pandas.core")

    monkeypatch.setattr(lazy.importlib, "import_module", no_pandas)
    assert main(["report"]) == 3
    err = capsys.readouterr().err
    assert "pandas" in err
    assert "scripts/setup" in err
    assert err.count("\n") == 1


def test_reader_that_goes_away_is_no_noise():
    with subprocess.Popen([*MLTCP, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        p.stdout.close()
        assert p.stderr.read() == b""
    assert p.returncode == 1


@pytest.mark.parametrize(
    ("shell", "part"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete ")]
)
def test_completion_script(shell, part, capsys):
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert part in out
    assert "_MLTCP_COMPLETE" in out


def test_completion_offers_commands_and_options():
    def complete(words, position):
        env = {
            **os.environ,
            "_MLTCP_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        }
        return subprocess.run(MLTCP, env=env, capture_output=True, text=True).stdout.splitlines()

    assert complete("mltcp do", 1) == ["plain,doctor"]
    assert {f"plain,{name}" for name in COMMANDS} <= set(complete("mltcp ", 1))
    assert "plain,--json" in complete("mltcp doctor --", 2)
    assert set(complete("mltcp completion ", 2)) == {"plain,bash", "plain,zsh", "plain,fish"}
