# SPDX-License-Identifier: BSD-2-Clause
"""Folders in which only their owner changes files, for what is recorded to be undone later.

A file is replaced whole (written aside, synced, renamed); it is believed only if it is a plain file
of this user that nobody else may write or read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from mltcp_tools.base.errors import HostError

SIZE_MAX = 64 * 2**20
"""Of a file: about 200,000 sockets, more than a host has ports."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_T = TypeVar("_T")

_parsed: dict[Path, tuple[tuple[int, ...], Any]] = {}
"""The last results of files, each with what told the file from any other then."""


class TrustedFolder:
    """The folder `directory`, which is made with the first file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        """Of all files; none where the folder isn't there yet.

        Raises HostError for a folder that isn't trusted, with what to do; so do the others.
        """
        try:
            with self._open() as folder:
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def parsed(self, name: str, parse: Callable[[bytes], _T]) -> _T | None:
        """The result of `parse` on a file's content; None where there is none (any more).

        It must not change, as it is kept for as long as the file is the same. The content of a file
        that is longer than SIZE_MAX is cut one byte behind that.
        """
        path = self.directory / name
        opened = self._open_file(name)
        if opened is None:
            _parsed.pop(path, None)
            return None
        with opened as file:
            found = os.fstat(file.fileno())
            stamp = (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size)
            if path not in _parsed or _parsed[path][0] != stamp:
                _parsed[path] = stamp, parse(file.read(SIZE_MAX + 1))
            made: _T = _parsed[path][1]
        return made

    def _open_file(self, name: str) -> BinaryIO | None:
        """The file, once it is known that nobody else can have written it; None without one."""
        path = self.directory / name
        # without O_NONBLOCK, opening a planted pipe would wait for a writer
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with self._open() as folder:
                descriptor = os.open(name, flags, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            link = error.errno == errno.ELOOP
            why = "it is a symbolic link" if link else f"it can't be opened ({error.strerror})"
            raise distrust(path, why) from None
        with ExitStack() as stack:
            file = stack.enter_context(open(descriptor, "rb"))
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise distrust(path, "it is not a plain file with a single name")
            if found.st_uid != os.geteuid():
                raise distrust(path, f"it belongs to user {found.st_uid}")
            if found.st_mode & 0o077:
                raise distrust(path, "users other than its owner may read or write it")
            stack.pop_all()
            return file

    def write(self, name: str, data: str) -> None:
        """Put a file in place; it is on disk when this returns."""
        aside = f".{name}.new"
        self.directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.directory.mkdir(mode=0o700)
        with self._open() as folder:
            with suppress(FileNotFoundError):
                os.unlink(aside, dir_fd=folder)  # a crash left it
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(aside, flags, 0o600, dir_fd=folder), "w") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def remove(self, name: str) -> None:
        """Remove a file. No error where there is none."""
        with suppress(FileNotFoundError), self._open() as folder:
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    @contextmanager
    def _open(self) -> Iterator[int]:
        """A descriptor of the folder, once it is known that nobody else can change what is in it.

        FileNotFoundError when there is none.
        """
        above = os.stat(self.directory.parent)
        if above.st_uid not in (0, os.geteuid()) or above.st_mode & 0o022 & ~_sticky(above.st_mode):
            raise distrust(self.directory.parent, "other users may change it")
        try:
            folder = os.open(
                self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            )
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise distrust(self.directory, "it is a link or a file") from None
            raise
        try:
            found = os.fstat(folder)
            if found.st_uid != os.geteuid():
                raise distrust(self.directory, f"it belongs to user {found.st_uid}")
            if found.st_mode & 0o077:
                raise distrust(self.directory, "users other than its owner may enter it")
            yield folder
        finally:
            os.close(folder)


def distrust(path: Path, why: str) -> HostError:
    """The error for a file or folder that isn't to be believed."""
    return HostError(
        f"{path} can't be trusted: {why}; inspect it, then move it away (what it records can then"
        " not be restored)."
    )


def boot_id() -> str:
    """Another one after each boot, with which what was recorded before has no meaning."""
    return _BOOT_ID.read_text().strip()


def _sticky(mode: int) -> int:
    """The permission bits that a sticky folder makes harmless: others can't rename our files."""
    return 0o022 if mode & stat.S_ISVTX else 0
