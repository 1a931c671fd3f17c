# SPDX-License-Identifier: BSD-2-Clause
"""Errors a user can act on, each with the exit code of the `mltcp` command, and how programs end.

A message is one sentence or two: what went wrong, where, and what to do about it.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable


class MltcpError(Exception):
    """Something failed while running (exit code 1)."""

    exit_code = 1


class UsageError(MltcpError):
    """The request itself is wrong: an option, an experiment file, a run folder (exit code 2)."""

    exit_code = 2


class HostError(MltcpError):
    """The host lacks a capability, a kernel feature or a tool (exit code 3)."""

    exit_code = 3


class UnknownError(MltcpError):
    """A look-up failed, so it isn't known whether something is there (exit code 3).

    Not a HostError: what makes do without a part of the host must not take this for its absence.
    """

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


def run(main: Callable[[], object], again: str) -> int:
    """Run a program's main part and return its exit code; a number that it returns is that.

    again: the command line that repeats it, for who reports a mistake of ours.
    """
    try:
        result = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain(None, "interrupted")
        return 130
    except MltcpError as error:
        complain(error, str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; keep the interpreter's last flush from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is not None:
            complain(error, f"{error.filename}: {error.strerror}.")
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):  # write(2) knows no file name
            complain(error, f"{error.strerror}.")
        else:
            _unexpected(error, again)
        return 1
    except Exception as error:
        _unexpected(error, again)
        return 1
    return result if isinstance(result, int) else 0


def complain(error: BaseException | None, message: str) -> None:
    """Write an error to stderr, with its traceback where MLTCP_DEBUG is set."""
    if error is not None and os.environ.get("MLTCP_DEBUG"):
        traceback.print_exception(error)
    print(f"mltcp: error: {message}", file=sys.stderr)


def _unexpected(error: Exception, again: str) -> None:
    complain(
        error,
        f"this should not have happened ({type(error).__name__}: {error}); please report it with"
        f" what `MLTCP_DEBUG=1 {again}` prints.",
    )
