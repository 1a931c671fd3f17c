# SPDX-License-Identifier: BSD-2-Clause
"""The `mltcp` command: runs a sub-command, and turns errors into one line and an exit code.

A command module `mltcp_tools.cli.<name>` exposes `command` (lazy.py).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence

import click

from mltcp_tools import __version__
from mltcp_tools.base.errors import complain, run
from mltcp_tools.cli.lazy import LazyGroup

SECTIONS = {
    "Operating": {
        "doctor": "Check what this host has and lacks, with fixes.",
        "load": "Register the MLTCP congestion controls with the kernel.",
        "unload": "Remove the MLTCP congestion controls from the kernel.",
        "status": "Show what is loaded, the jobs, and the flows.",
        "connections": "Show the TCP connections of training processes.",
        "attach": "Assign connections of running processes to a job.",
        "detach": "Restore the congestion control of attached connections.",
        "watch": "Show the iteration times of attached jobs as they run.",
        "trial": "Measure on running jobs whether MLTCP helps them.",
        "agent": "Attach connections of training processes by rules, as a daemon.",
        "report": "Report the results of a run folder, or compare two.",
    },
    "Trying it out": {
        "simulate": "Run experiments in virtual time, without root.",
        "testbed": "Run experiments with real TCP, on namespaces or hosts.",
    },
    "Experiments and related approaches": {
        "lab": "Emulate jobs; record, profile and prioritize running ones.",
        "plan": "Plan which jobs share links, and when each sends.",
        "collectives": "Sum gradients with less traffic, and compare all-reduces.",
        "cluster": "Simulate whole clusters and their schedulers.",
    },
    "Other": {
        "completion": "Print the completion script of a shell.",
    },
}
"""The commands in the order in which help shows them."""

EXIT_CODES = """\
  0    done
  1    failed while running
  2    wrong usage: an option, an input file or a run folder that can't be used
  3    a privilege (run it as root), a kernel feature or a tool is missing
  4    a name is taken, or something is still in use
  130  interrupted"""
ENVIRONMENT = """\
  MLTCP_SSH     command that reaches a host (default: ssh -o BatchMode=yes …)
  MLTCP_REMOTE  command of mltcp on that host, such as "sudo -n mltcp" (default: mltcp)
  MLTCP_DEBUG   1: show the traceback of an error
  NO_COLOR      1: print without colours"""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    hidden=("serve",),
    epilog=f"\b\nExit codes:\n{EXIT_CODES}\n\n\b\nEnvironment:\n{ENVIRONMENT}",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="mltcp", message="%(prog)s %(version)s")
def cli() -> None:
    """Move apart the network bursts of training jobs on one link, using TCP congestion control.

    \b
    Examples:
      mltcp simulate four-jobs                four jobs on one link, in virtual time, without root
      mltcp load                              register the MLTCP congestion controls
      mltcp attach train.py --job gpt2        switch the connections of running processes
      mltcp trial --job gpt2 --job bert       measure whether it helps; name all jobs on the link
      mltcp unload --everything               remove all of MLTCP from this host
    """


COMMANDS = cli.summaries
"""Those of SECTIONS, with their summaries."""


def main(args: Sequence[str] | None = None) -> int:
    """Run `mltcp` with `args` (default: the process's) and return its exit code."""
    args = list(sys.argv[1:] if args is None else args)
    return run(lambda: _run(args), shlex.join(["mltcp", *args]))


def _run(args: list[str]) -> object:
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    elif args == ["version"]:
        args = ["--version"]
    try:
        # https://no-color.org; what isn't a terminal gets no colours anyway.
        colour = False if os.environ.get("NO_COLOR") else None
        # Without standalone mode, ctx.exit(code) comes back as the result.
        return cli.main(args=args, prog_name="mltcp", standalone_mode=False, color=colour)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        complain(error, _usage_sentence(error))
        return error.exit_code
    except click.Abort:
        raise KeyboardInterrupt from None
    except ModuleNotFoundError as error:
        from mltcp_tools.cli.extras import lacks_package

        if (lacking := lacks_package(next(iter(args), ""), error)) is None:
            raise
        raise lacking from error


def _usage_sentence(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())  # click lists choices over several lines
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message = message.removesuffix(".") + f"; try `{error.ctx.command_path} --help`."
    return message


if __name__ == "__main__":
    sys.exit(main())
