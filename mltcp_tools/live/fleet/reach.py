"""Reaching hosts, many at the same time: commands there, by ssh mostly."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from mltcp_tools.errors import HostError, MltcpError

_Found = TypeVar("_Found")
_SSH_FAILED = 255


@dataclass(frozen=True)
class Remote:
    """The way to hosts. ssh: the command that is given a host and what to run there.

    mltcp: how the tool is called there.
    """

    ssh: Sequence[str]
    mltcp: Sequence[str]

    def command(self, host: str, *arguments: str) -> list[str]:
        """Return the command line that runs `mltcp ARGUMENT...` on the host."""
        return [*self.ssh, host, *self.mltcp, *arguments]

    def output(self, host: str, timeout_s: float, *arguments: str) -> str:
        """Return what the command prints there, however it ends, if it prints anything.

        MltcpError says why there is nothing.
        """
        command = self.command(host, *arguments)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_s,
            )
        except FileNotFoundError:
            raise HostError(f"The command {command[0]} is missing.") from None
        except subprocess.TimeoutExpired:
            raise MltcpError(f"no answer within {timeout_s:.0f} s") from None
        if done.stdout and done.returncode != _SSH_FAILED:
            return done.stdout
        said = done.stderr.strip().rpartition("mltcp: error: ")[2].splitlines()
        raise MltcpError(said[-1] if said else f"exit code {done.returncode}, without a word")


def at_all(
    hosts: Sequence[str], ask: Callable[[str], _Found], at_once: int
) -> list[tuple[str, _Found | MltcpError]]:
    """Ask each host, `at_once` at the same time; what each gave, or why it gave nothing.

    A HostError, which is about this host, is raised.
    """

    def asked(host: str) -> _Found | MltcpError:
        try:
            return ask(host)
        except HostError:
            raise
        except MltcpError as error:
            return error

    with ThreadPoolExecutor(at_once) as pool:
        return list(zip(hosts, pool.map(asked, hosts), strict=True))
