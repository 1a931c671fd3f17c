# SPDX-License-Identifier: BSD-2-Clause
"""Probes in processes that call the real NCCL."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from train.conftest import Report

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.live.sources.call_source import CallSource
from mltcp_tools.live.sources.call_sources import CallSources
from mltcp_tools.live.sources.nccl import KINDS, Communicator, NcclSource

CALLER = Path(__file__).parent / "caller.py"
COUNT = 1_000_000
BUCKETS = 4


class Caller:
    """A process that calls NCCL when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pid = process, process.pid
        assert self._line() == ["ready"]

    def _line(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def start(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def period_s(self) -> float:
        """Wait for the calls to be over; how long an iteration took."""
        word, seconds = self._line()
        assert word == "done"
        return float(seconds)


@contextlib.contextmanager
def caller(
    library: Path,
    iterations: int = 12,
    pause_s: float = 0.01,
    idle_s: float = 0.15,
    ranks: int | None = None,
    before: tuple[str, ...] = (),
    world_size: int | None = 4,
) -> Iterator[Caller]:
    environment = {**os.environ, **({"WORLD_SIZE": str(world_size)} if world_size else {})}
    words = [library, iterations, BUCKETS, COUNT, pause_s, idle_s, *([ranks] if ranks else [])]
    with subprocess.Popen(
        [*before, sys.executable, str(CALLER), *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield Caller(process)
        finally:
            process.kill()


def poll_until_done(source: CallSource, running: Caller) -> float:
    """Take the calls as they come, and the last ones; how long an iteration took."""
    period_s = running.period_s()
    source.poll(0.1)
    return period_s


def test_known_rhythm_comes_out(nccl_library: Path, report: Report) -> None:
    with NcclSource() as source, caller(nccl_library) as running:
        assert source.watch(running.pid)
        running.start()
        period_s = poll_until_done(source, running)
        found = source.metadata(running.pid, flows=2)
        assert found is not None
        assert source.lost == 0
    assert found.source == "nccl"
    assert found.period_s == pytest.approx(period_s, rel=0.1)
    # Four ranks: each sends 2 * 3/4 of every buffer, here over two sockets.
    assert found.bytes_per_iteration == BUCKETS * COUNT * 4 * 3 // 2 // 2
    assert 0.01 < found.gap_s < 0.15
    assert found.confidence > 0.9
    report.line(
        f"NCCL: iterations of {period_s * 1e3:.1f} ms come out as {found.period_s * 1e3:.1f} ms,"
        f" {found.bytes_per_iteration} bytes per flow, gap {found.gap_s * 1e3:.0f} ms"
    )


def test_ranks_come_from_the_communicator(nccl_library: Path) -> None:
    with NcclSource() as source, caller(nccl_library, ranks=8, world_size=None) as running:
        assert source.watch(running.pid)
        assert source.communicator(running.pid, 0) is None
        running.start()
        poll_until_done(source, running)
        # Without a GPU there is no handle, as for the calls that follow.
        assert source.communicator(running.pid, 0) == Communicator(8, 7)
        found = source.metadata(running.pid, flows=1)
    assert found is not None
    assert found.bytes_per_iteration == BUCKETS * COUNT * 4 * 2 * 7 // 8


class Recorder(NcclSource):
    """Keeps what the program reports."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, int, int, int]] = []
        super().__init__()

    def _receive(self, event: Any) -> None:
        fields = (event.count, event.datatype, event.rank, event.communicator)
        self.events.append((KINDS[event.kind], *fields))


def test_endlessly_calling_process_does_not_hide_others(
    nccl_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltcp_tools.live.sources.call_source._AT_ONCE", 10)
    with Recorder() as source, caller(nccl_library, pause_s=0, idle_s=0) as running:
        assert source.watch(running.pid)
        running.start()
        running.period_s()
        seen = []
        while not seen or len(source.events) > seen[-1]:
            seen.append(len(source.events))
            source.poll(0.1)
        assert source.lost == 0
    taken = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert set(taken[1:-1]) == {10}, seen
    assert seen[-1] >= 12 * BUCKETS


EVERY_FUNCTION = """
import ctypes, sys
nccl = ctypes.CDLL(sys.argv[1])
# No communicator, which NCCL finds out by reading from it.
communicator = ctypes.create_string_buffer(1 << 20)
handles = (ctypes.c_void_p * 2)()
print(ctypes.addressof(communicator), flush=True)
sys.stdin.readline()
def count(n): return ctypes.c_size_t(2**40 + n)
nccl.ncclAllReduce(None, None, count(0), 0, 0, communicator, None)
nccl.ncclReduceScatter(None, None, count(1), 1, 0, communicator, None)
nccl.ncclAllGather(None, None, count(2), 2, communicator, None)
nccl.ncclBroadcast(None, None, count(3), 3, 13, communicator, None)
nccl.ncclReduce(None, None, count(4), 4, 0, 14, communicator, None)
nccl.ncclSend(None, count(8), 8, 18, communicator, None)
nccl.ncclRecv(None, count(9), 9, 19, communicator, None)
nccl.ncclBcast(None, count(5), 5, 15, communicator, None)
nccl.ncclGroupStart()
nccl.ncclGroupEnd()
class UniqueId(ctypes.Structure): _fields_ = (("internal", ctypes.c_char * 128),)
nccl.ncclCommInitRank(handles, 6, UniqueId(), 5)
nccl.ncclCommInitRankConfig(handles, 7, UniqueId(), 4, None)
nccl.ncclCommInitRankScalable(handles, 8, 3, 1, ctypes.byref(UniqueId()), None)
nccl.ncclCommInitAll(handles, 2, None)
nccl.ncclGroupStart()
print("done", flush=True)
"""


def python(code: str, library: Path) -> subprocess.Popen[str]:
    """Python that runs `code`, which is told the library, with pipes to it and from it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_every_function_is_read(nccl_library: Path) -> None:
    with (
        Recorder() as source,
        python(EVERY_FUNCTION, nccl_library) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        handle = int(process.stdout.readline())
        assert source.watch(process.pid)
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        source.poll(0.1)
    assert process.returncode == 0
    assert source.events == [
        ("all_reduce", 2**40, 0, 0, handle),
        ("reduce_scatter", 2**40 + 1, 1, 0, handle),
        ("all_gather", 2**40 + 2, 2, 0, handle),
        ("broadcast", 2**40 + 3, 3, 13, handle),
        ("reduce", 2**40 + 4, 4, 14, handle),
        ("send", 2**40 + 8, 8, 18, handle),
        ("recv", 2**40 + 9, 9, 19, handle),
        ("broadcast", 2**40 + 5, 5, 15, handle),
        ("group_start", 0, 0, 0, 0),
        ("group_end", 0, 0, 0, 0),
        # Without a GPU no handle is given.
        ("communicator", 6, 0, 5, 0),
        ("communicator", 7, 0, 4, 0),
        ("communicator", 8, 0, 3, 0),
        ("communicator", 2, 0, 0, 0),
        ("communicator", 2, 0, 1, 0),
        ("group_start", 0, 0, 0, 0),
    ]


def test_a_library_that_was_replaced_or_deleted(nccl_library: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libnccl.so.2"
    shutil.copy(nccl_library, copy)
    with NcclSource() as source, caller(copy) as running:
        copy.unlink()
        copy.write_bytes(b"an upgrade")
        assert source.watch(running.pid)
        running.start()
        poll_until_done(source, running)
        assert source.iterations(running.pid) is not None


def test_a_process_in_a_mount_namespace_of_its_own(nccl_library: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "only-inside"
    elsewhere.mkdir()
    script = f'mount --bind "{nccl_library.parent}" "{elsewhere}" && exec "$@"'
    before = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")
    with NcclSource() as source, caller(elsewhere / "libnccl.so.2", before=before) as running:
        assert not (elsewhere / "libnccl.so.2").exists()
        assert source.watch(running.pid)
        running.start()
        poll_until_done(source, running)
        assert source.iterations(running.pid) is not None


def test_only_watched_processes_are_seen(nccl_library: Path) -> None:
    with (
        NcclSource() as source,
        caller(nccl_library) as watched,
        caller(nccl_library) as unwatched,
        caller(nccl_library) as forgotten,
    ):
        source.watch(watched.pid)
        source.watch(forgotten.pid)
        source.watch(watched.pid)  # twice is fine
        source.forget(forgotten.pid)
        source.forget(forgotten.pid)
        for each in (watched, unwatched, forgotten):
            each.start()
        for each in (watched, unwatched, forgotten):
            poll_until_done(source, each)
        assert source.watched == {watched.pid}
        found = source.iterations(watched.pid)
        assert found is not None
        # Not twice as many, as if there were two probes.
        assert found.sent_bytes == BUCKETS * COUNT * 4 * 3 // 2
        assert source.metadata(unwatched.pid) is None
        assert source.metadata(forgotten.pid) is None


def test_a_process_that_ends_while_it_is_watched(nccl_library: Path) -> None:
    with NcclSource() as source:
        with caller(nccl_library) as running:
            source.watch(running.pid)
            running.start()
            time.sleep(0.3)
        source.poll(0.1)
        source.forget(running.pid)
        with pytest.raises(MltcpError, match="no process"):
            source.watch(running.pid)
        assert source.watched == frozenset()


def test_a_process_without_nccl_is_not_watched() -> None:
    with NcclSource() as source:
        assert not source.watch(os.getpid())
        assert source.watched == frozenset()


def test_nothing_is_left_in_a_process(nccl_library: Path) -> None:
    """A probe is a breakpoint in the code that the process has mapped."""
    with caller(nccl_library) as running:
        code = all_reduce_code(running.pid, nccl_library)
        with NcclSource() as source:
            source.watch(running.pid)
            before = set(os.listdir("/proc/self/fd"))
            assert all_reduce_code(running.pid, nccl_library) != code
            source.forget(running.pid)
            assert all_reduce_code(running.pid, nccl_library) == code
            assert len(os.listdir("/proc/self/fd")) < len(before)
        running.start()
        assert running.period_s() > 0


def all_reduce_code(pid: int, library: Path) -> bytes:
    """The first bytes of ncclAllReduce in a process."""
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True)
    line = next(line for line in symbols.stdout.splitlines() if line.endswith(" ncclAllReduce"))
    base = min(
        int(line.split("-")[0], 16)
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        if line.endswith("libnccl.so.2")
    )
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(base + int(line.split()[0], 16))
        return memory.read(4)


def test_all_sources_at_once(nccl_library: Path) -> None:
    said: list[str] = []
    with CallSources(said.append) as sources, caller(nccl_library) as running:
        sources.watch(os.getpid(), 0.0)
        sources.watch(running.pid, 0.0)
        running.start()
        period_s = running.period_s()
        sources.poll()
        ((found, last_s),) = sources.metadata([(os.getpid(), 1), (running.pid, 1)])
        assert found.source == "nccl"
        assert found.period_s == pytest.approx(period_s, rel=0.1)
        assert time.monotonic() - 5 < last_s < time.monotonic()
        sources.forget(running.pid)
        assert sources.metadata([(running.pid, 1)]) == []
    assert said == []


def test_without_privilege_nothing_is_probed(nccl_library: Path) -> None:
    code = (
        "import os, re, sys; os.setuid(65534)\n"
        "from mltcp_tools.live.sources.call_sources import CallSources\n"
        "from mltcp_tools.live.sources.libraries import mapped_libraries\n"
        "from mltcp_tools.base.errors import HostError\n"
        "with CallSources(print) as sources: sources.watch(int(sys.argv[1]), 0.0)\n"
        "try: mapped_libraries(int(sys.argv[1]), re.compile('libnccl'))\n"
        "except HostError as error: print(error)\n"
    )
    with caller(nccl_library) as running:
        before = all_reduce_code(running.pid, nccl_library)
        done = subprocess.run(
            [sys.executable, "-c", code, str(running.pid)], capture_output=True, text=True
        )
        assert "the calls of nccl: This process lacks CAP_BPF and CAP_PERFMON" in done.stdout, done
        assert "the calls of gloo: This process lacks CAP_BPF and CAP_PERFMON" in done.stdout, done
        assert "CAP_SYS_PTRACE is missing" in done.stdout, done
        assert all_reduce_code(running.pid, nccl_library) == before
