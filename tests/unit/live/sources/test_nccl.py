# SPDX-License-Identifier: BSD-2-Clause
"""Bytes that a call of NCCL sends, and facts from a process's environment and memory map."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from mltcp_tools.live.sources.calls import CallLog
from mltcp_tools.live.sources.libraries import mapped_libraries
from mltcp_tools.live.sources.nccl import KINDS, Communicator, NcclSource, sent_bytes, world_size

FLOAT32 = 7
PID = 4711


@pytest.mark.parametrize(
    ("kind", "ranks", "expected"),
    [
        ("all_reduce", 4, 6000),
        ("reduce_scatter", 4, 12000),
        ("all_gather", 4, 12000),
        ("all_to_all", 4, 12000),
        ("gather", 4, 3000),
        ("broadcast", 4, 4000),
        ("send", 4, 4000),
        ("recv", 4, 0),
    ],
)
def test_a_thousand_floats(kind: str, ranks: int, expected: int) -> None:
    assert sent_bytes(kind, 1000, FLOAT32, ranks) == expected


def receiver() -> tuple[NcclSource, CallLog]:
    """A source without probes, to hand events to."""
    source = NcclSource.__new__(NcclSource)
    log = CallLog()
    source._logs, source._groups = {PID: log}, {}
    source._communicators = {PID: {0: Communicator(2, None)}}
    return source, log


def event(kind: str, time_s: float = 0.0, **fields: int) -> SimpleNamespace:
    usual = {"communicator": 0, "count": 0, "datatype": FLOAT32, "rank": 0, "thread": 1}
    return SimpleNamespace(
        time_ns=int(time_s * 1e9), kind=KINDS.index(kind), pid=PID, **(usual | fields)
    )


def test_a_group_is_one_call() -> None:
    source, log = receiver()
    for i in range(8):
        for kind in ("group_start", "group_start", "send", "recv", "group_end"):
            source._receive(event(kind, i, count=100, rank=1))
        source._receive(event("send", i, count=100, rank=1, thread=2))
        assert len(log) == 2 * i + 1
        source._receive(event("group_end", i))
        assert len(log) == 2 * i + 2
    found = source.iterations(PID)
    assert found is not None
    assert (found.period_s, found.sent_bytes) == (1.0, 800)


def test_a_group_whose_end_is_lost_ends_all_the_same() -> None:
    source, log = receiver()
    source._receive(event("group_start"))
    for i in range(3000):
        source._receive(event("all_reduce", i, count=1))
    assert len(log) > 900
    source._receive(event("group_end"))
    source._receive(event("group_end"))


def test_communicators_have_their_own_ranks() -> None:
    source, _ = receiver()
    source._receive(event("communicator", communicator=77, count=8, rank=3))
    assert source.communicator(PID, 77) == Communicator(8, 3)
    assert source.communicator(PID, 78) == Communicator(2, None)
    # What a rank sends to itself leaves no host.
    for i in range(6):
        source._receive(event("send", i, communicator=77, count=100, rank=3))
        source._receive(event("all_reduce", i + 0.1, communicator=77, count=100))
    found = source.iterations(PID)
    assert found is not None
    assert found.sent_bytes == 700


def test_a_process_cannot_make_us_remember_without_limit() -> None:
    source, _ = receiver()
    for i in range(10000):
        source._receive(event("communicator", communicator=i + 1, count=2))
    assert len(source._communicators[PID]) <= 4096

    for i in range(10000):
        source._receive(event("group_start", thread=i))
    assert len(source._groups) <= 4096


def proc_with(tmp_path: Path, **files: bytes) -> Path:
    folder = tmp_path / str(PID)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (b"A=1\0WORLD_SIZE=16\0B", 16),
        (b"WORLD_SIZE=16", None),  # cut off, so it may be 160,
        (b"OMPI_COMM_WORLD_SIZE=3\0SLURM_NTASKS=4\0", 3),
        (b"WORLD_SIZE=many\0", None),
        (b"WORLD_SIZE=0\0", None),
        (b"WORLD_SIZE=99999999999999999999\0", None),
        (b"\xff\xfe=\0\0\0", None),
        (b"", None),
    ],
)
def test_world_size(tmp_path: Path, environ: bytes, expected: int | None) -> None:
    assert world_size(PID, proc_with(tmp_path, environ=environ)) == expected


def test_only_code_counts_and_each_file_once(tmp_path: Path) -> None:
    library = tmp_path / "root" / "libnccl.so.2"
    proc = proc_with(
        tmp_path,
        maps=b"""\
7f00-7f10 r--p 00000000 00:2a 99 /a b/libnccl.so.2
7f10-7f20 r-xp 00000000 00:2a 99 /a b/libnccl.so.2
7f20-7f30 r-xp 00000000 00:2a 99 /a b/libnccl.so.2
7f30-7f40 r-xp 00000000 00:2a 98 /opt/other.so
7f40-7f50 r-xp 00000000 00:00 0 [vdso]
7f50-7f60 r-xp 00000000 00:2a libnccl.so.2
nonsense
""",
    )
    mapped = tmp_path / str(PID) / "map_files"
    mapped.mkdir()
    library.parent.mkdir()
    library.touch()
    (mapped / "7f10-7f20").symlink_to(library)
    found = mapped_libraries(PID, re.compile(r"libnccl\.so"), proc)
    assert [(each.path, each.inode) for each in found] == [("/a b/libnccl.so.2", 99)]
    assert found[0].file == mapped / "7f10-7f20"
