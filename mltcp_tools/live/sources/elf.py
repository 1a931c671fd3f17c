# SPDX-License-Identifier: BSD-2-Clause
"""The places of a shared library's exported functions: a look-up in its hash table of symbols.

The dynamic linker finds symbols the same way, so it takes a few reads however many symbols there
are (torch's library has a quarter of a million). Format: the ELF specification and its x86-64 and
AArch64 supplements (64 bits, little-endian); the hash table is GNU's (`-z hash-style=gnu`, the
default of all Linux distributions).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from mltcp_tools.base.errors import MltcpError

_IDENT = b"\x7fELF\x02\x01"
_FILE_HEADER = struct.Struct("<40xQ10xHH2x")
_SECTION = struct.Struct("<4xI16xQQI20x")
_SYMBOL = struct.Struct("<IBxHQ8x")
_HASH_HEADER = struct.Struct("<IIII")
_WORD = struct.Struct("<I")

_STRINGS, _DYNAMIC_SYMBOLS, _GNU_HASH = 3, 11, 0x6FFFFFF6
_FUNCTION = 2
_LONGEST_CHAIN = 10_000


def exported_functions(file: Path, names: Iterable[str]) -> dict[str, int]:
    """The addresses, as the file gives them, of the names that it exports.

    MltcpError for a file that is no such library.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise MltcpError(f"{file} can't be opened ({error.strerror}).") from error
    try:
        table = _HashTable(descriptor)
        found = {name: table.find(name.encode()) for name in names}
    except (struct.error, OSError, OverflowError, ZeroDivisionError, _Malformed) as error:
        raise MltcpError(
            f"{file} is no 64-bit library with a GNU hash table of its symbols, so it can't be"
            " probed."
        ) from error
    finally:
        os.close(descriptor)
    return {name: address for name, address in found.items() if address}


class _Malformed(Exception):
    pass


class _HashTable:
    """GNU's: hashes in buckets, each a run of symbols whose last one's hash is odd."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        if os.pread(descriptor, len(_IDENT), 0) != _IDENT:
            raise _Malformed
        place, size, count = _FILE_HEADER.unpack(os.pread(descriptor, _FILE_HEADER.size, 0))
        if size != _SECTION.size:
            raise _Malformed
        sections = list(_SECTION.iter_unpack(os.pread(descriptor, size * count, place)))
        by_type = {kind: (offset, link) for kind, offset, _, link in sections}
        if not {_DYNAMIC_SYMBOLS, _GNU_HASH} <= by_type.keys():
            raise _Malformed
        self._symbols, strings = by_type[_DYNAMIC_SYMBOLS]
        if strings >= len(sections) or sections[strings][0] != _STRINGS:
            raise _Malformed
        self._strings = sections[strings][1]
        offset = by_type[_GNU_HASH][0]
        self._count, self._first, bloom, _ = self._read(_HASH_HEADER, offset)
        self._buckets = offset + _HASH_HEADER.size + 8 * bloom
        self._chains = self._buckets + _WORD.size * self._count

    def find(self, name: bytes) -> int:
        """The function's address, 0 when the library doesn't export it."""
        wanted = 5381
        for byte in name:
            wanted = (wanted * 33 + byte) & 0xFFFFFFFF
        (index,) = self._read(_WORD, self._buckets + _WORD.size * (wanted % self._count))
        for symbol in range(index, index + _LONGEST_CHAIN if index >= self._first else index):
            (hashed,) = self._read(_WORD, self._chains + _WORD.size * (symbol - self._first))
            if hashed | 1 == wanted | 1 and (address := self._address(symbol, name)):
                return address
            if hashed & 1:
                break
        return 0

    def _address(self, symbol: int, name: bytes) -> int:
        """Of the symbol, if it has that name and is a function that this file defines."""
        text, info, section, address = self._read(_SYMBOL, self._symbols + _SYMBOL.size * symbol)
        own = os.pread(self._descriptor, len(name) + 1, self._strings + text)
        is_function = info & 0xF == _FUNCTION
        return int(address) if own == name + b"\0" and is_function and section else 0

    def _read(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        return layout.unpack(os.pread(self._descriptor, layout.size, offset))
