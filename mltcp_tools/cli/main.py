"""The `mltcp` command: runs a sub-command, and turns errors into one line and an exit code.

A command module `mltcp_tools.cli.<name>` exposes `command`. It is imported only when that command
is run, so that help is quick and a package missing for one command does not break the others.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from mltcp_tools import __version__
from mltcp_tools.base.errors import complain, run

COMMANDS = {
    "doctor": "Say what this host has and lacks, with the fix for each.",
    "load": "Register the MLTCP congestion controls with the kernel.",
    "unload": "Take the MLTCP congestion controls out of the kernel.",
    "status": "Show what is loaded, as read back from the kernel.",
    "flows": "List the flows that MLTCP controls.",
    "ps": "Show training processes and the kinds of their connections.",
    "attach": "Assign connections of running processes to a job.",
    "detach": "Restore the congestion control of attached connections.",
    "agent": "Follow training processes by rules, as a daemon.",
    "jobs": "List the jobs, and what is known of their iterations.",
    "watch": "Show attached jobs as they run.",
    "record": "Record the iterations of attached jobs for `mltcp report`.",
    "emulate": "Run one side of an emulated training job over TCP.",
    "testbed": "Run experiments over a bottleneck made of network namespaces.",
    "simulate": "Run experiments in virtual time, without root.",
    "report": "Evaluate or compare run folders.",
    "profile": "Show what jobs send per iteration, from runs or captures.",
    "trial": "Prove on running jobs whether mltcp helps them.",
    "priorities": "Order jobs' bursts, and give each its priority.",
    "aggregate": "Run the aggregator, which sums up gradients in the network.",
    "collectives": "Compare all-reduces on links of this host's own.",
    "plan": "Say which jobs fit together, and when each should start.",
    "cluster": "Simulate whole clusters and their schedulers.",
    "completion": "Print the completion script of a shell.",
}

GROUPS = {
    "Kernel": ("doctor", "load", "unload", "status", "completion"),
    "Live jobs": (
        "ps",
        "attach",
        "detach",
        "agent",
        "jobs",
        "flows",
        "watch",
        "record",
        "trial",
        "priorities",
    ),
    "Experiments": (
        "testbed",
        "simulate",
        "emulate",
        "collectives",
        "aggregate",
        "report",
    ),
    "Planning": ("profile", "plan", "cluster"),
}
"""The commands in the order in which help shows them."""

EPILOG = """\b
Exit codes:
  0    done
  1    failed while running
  2    wrong usage: an option, a file of an experiment or a plan, an unusable run folder
  3    the host lacks a capability, a kernel feature or a tool
  4    a name is taken or something is still in use
  130  interrupted

Set MLTCP_DEBUG=1 to see the traceback of an error, NO_COLOR=1 for text without colours."""


class LazyGroup(click.Group):
    """A group whose commands are imported on first use; their summaries are known without that."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(f"mltcp_tools.cli.{cmd_name}")
        except ModuleNotFoundError as error:
            from mltcp_tools.cli.extras import lacks_package

            if (lacking := lacks_package(cmd_name, error)) is None:
                raise
            raise lacking from error
        command = module.command
        if not isinstance(command, click.Command):
            raise TypeError(f"{module.__name__}.command is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=summary)
            for name, summary in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mltcp", message="%(prog)s %(version)s")
def cli() -> None:
    """Keep the network bursts of training jobs out of each other's way.

    Load the MLTCP congestion controls, try them on emulated jobs, and see what they gain.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run `mltcp` with `args` (default: the process's) and return its exit code."""
    args = list(sys.argv[1:] if args is None else args)
    return run(lambda: _run(args), shlex.join(["mltcp", *args]))


def _run(args: list[str]) -> object:
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
