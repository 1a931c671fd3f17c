# SPDX-License-Identifier: BSD-2-Clause
"""Files that are replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Put `content` at `path` in one step, so that a reader never meets half of it.

    The new file has permissions `mode`. What was written aside is removed on every way out. Raises
    OSError that names `path`.
    """
    aside = ""
    try:
        descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.replace(aside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        if isinstance(error, OSError):  # write(2) knows no name, and the one aside means nothing
            error.filename, error.filename2 = os.fspath(path), None
        raise
