"""The end of a program: an exit code, and an error as one sentence."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable

from mltcp_tools.errors import MltcpError


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
