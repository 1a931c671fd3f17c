# SPDX-License-Identifier: BSD-2-Clause
"""Functions looked up in libraries, good and bad ones."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.live.sources.elf import exported_functions
from mltcp_tools.live.sources.libraries import mapped_libraries

LIBC = mapped_libraries(os.getpid(), re.compile(r"libc\.so"))[0].file


def test_addresses_are_those_that_nm_gives() -> None:
    output = subprocess.run(["nm", "-D", LIBC], capture_output=True, text=True, check=True).stdout
    symbols = [line.split() for line in output.splitlines()]
    # T: a function of this file. Those with versions have several addresses.
    addresses: dict[str, set[int]] = {}
    for words in symbols:
        if len(words) == 3 and words[1] == "T":
            addresses.setdefault(words[2].partition("@")[0], set()).add(int(words[0], 16))
    found = exported_functions(LIBC, addresses)
    assert len(addresses) > 1000
    assert found.keys() == addresses.keys()
    assert all(found[name] in addresses[name] for name in found)


@settings(max_examples=200)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    image = bytearray(LIBC.read_bytes())
    sections = int.from_bytes(image[40:48], "little")
    places = st.one_of(
        st.integers(0, 63), st.integers(sections, len(image) - 1), st.integers(0, 0x8000)
    )
    for place in data.draw(st.lists(places, min_size=1, max_size=20)):
        image[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(image)), st.integers(0, len(image))))
    file = tmp_path_factory.getbasetemp() / "damaged.so"
    file.write_bytes(image[:end])
    with contextlib.suppress(MltcpError):
        exported_functions(file, ["getpid", "no_such_function"])


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", bytes(80)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "other"
    file.write_bytes(content)
    with pytest.raises(MltcpError, match="no 64-bit library"):
        exported_functions(file, ["x"])
    with pytest.raises(MltcpError, match="No such file"):
        exported_functions(tmp_path / "missing", ["x"])
