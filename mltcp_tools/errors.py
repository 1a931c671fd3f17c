"""Errors a user can act on, each with the exit code the `mltcp` command ends with.

A message is one sentence or two: what went wrong, where, and what to do about it.
"""

from __future__ import annotations


class MltcpError(Exception):
    """Something failed while running (exit code 1)."""

    exit_code = 1


class UsageError(MltcpError):
    """The request itself is wrong: an option, an experiment file, a run folder (exit code 2)."""

    exit_code = 2


class HostError(MltcpError):
    """The host lacks a capability, a kernel feature or a tool (exit code 3)."""

    exit_code = 3


class BusyError(MltcpError):
    """A name is taken or something is still in use (exit code 4)."""

    exit_code = 4


def reason(error: MltcpError | OSError) -> str:
    """Return an error's text for people: the kernel's words on a file, not Python's."""
    if not isinstance(error, OSError):
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}."
