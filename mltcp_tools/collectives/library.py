# SPDX-License-Identifier: BSD-2-Clause
"""The worker (native/*.c, bpf/mltcp_aggregate.h) called from Python, through cffi."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.native.extension import declarations, extension

PACKET = """
struct agg_header {
    uint32_t magic; uint8_t type, flags; uint16_t worker;
    uint64_t key;
    uint32_t job, generation, round, operation, chunk, next;
    uint16_t slot, count; int16_t exponent; uint16_t reserved;
    uint64_t check;
};
struct agg_packet { struct agg_header header; int32_t values[1024]; };
struct agg_secret { unsigned long long word[2], pad[512]; };
struct agg_job {
    struct agg_secret secret;
    uint64_t key, everyone;
    uint32_t generation, first, slots, values, workers, by_tc;
};
struct agg_peer {
    uint32_t address, local_address;
    uint16_t port, local_port;
    uint8_t mac[6], local_mac[6];
    uint32_t interface;
};
struct agg_entry {
    uint64_t seen;
    uint32_t round, operation, chunk, next;
    int16_t exponent;
    uint16_t count;
    uint8_t flags, final;
    uint8_t reserved[2];
    int32_t values[1024];
};
#define AGG_VALUES_MAX ...
#define AGG_WORKERS_MAX ...
#define AGG_JOBS_MAX ...
"""

FOLDER = Path(__file__).resolve().parent / "native"
WORKER = declarations(FOLDER / "worker.h")
PREAMBLE = '#include "worker.h"\n'


class Kind(IntEnum):
    """Kinds of elements (enum worker_kind)."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    INT32 = 3

    @property
    def bytes(self) -> int:
        """Of an element."""
        return 2 if self in (Kind.FLOAT16, Kind.BFLOAT16) else 4


class How(IntEnum):
    """Operations on them (enum worker_how)."""

    SUM = 0
    AVERAGE = 1


class State(IntEnum):
    """Ends of a collective (enum worker_state)."""

    IDLE = 0
    RUNNING = 1
    DONE = 2
    NONFINITE = 3
    MISMATCH = 4
    SILENT = 5
    WAITING = 6
    CONTROL = 7
    BROKEN = 8
    STOPPED = 9
    TOO_LONG = 10


@functools.cache
def library() -> tuple[Any, Any]:
    """(lib, ffi) of the worker; HostError without a C compiler."""
    return extension("worker", PACKET + WORKER, PREAMBLE, FOLDER)


def constant(name: str) -> int:
    """The value of one of the header's constants."""
    lib, _ = library()
    return int(getattr(lib, name))


def secret_of(text: bytes) -> Any:
    """The 16 bytes that an admission carries, as struct agg_secret."""
    lib, ffi = library()
    secret = ffi.new("struct agg_secret *")
    secret.word = struct.unpack("<QQ", text)
    lib.expand_secret(secret)
    return secret[0]


@dataclass(frozen=True)
class Counters:
    """Counts of what a worker has sent and seen since it was opened (struct worker_counters).

    Packets, but sent_bytes (with our header, without UDP's), missing (bitmap of ranks), srtt_us
    and error (errno).
    """

    sent: int
    sent_bytes: int
    repeated: int
    polls: int
    received: int
    ignored: int
    corrupt: int
    losses: int
    windows_cut: int
    missing: int
    cwnd: int
    srtt_us: int
    error: int


@dataclass
class Chunks:
    """Marks of each chunk of a tensor, of `values` elements, where zeros are left out.

    marks: a byte for each (enum chunk_mark). slots: to use, the same at all ranks; 0 for all.
    """

    values: int
    marks: bytearray
    slots: int = 0

    @classmethod
    def of(cls, count: int, values: int, slots: int = 0) -> Chunks:
        """For a tensor of `count` elements that is yet to be summed."""
        return cls(values, bytearray(-(-count // values)), slots)

    def summed(self) -> npt.NDArray[np.bool_]:
        """Tell which have a sum, so that they aren't zero at some rank."""
        return (np.frombuffer(self.marks, dtype=np.uint8) & _SUMMED).astype(bool)


_SUMMED = 1  # CHUNK_SUMMED


class Worker:
    """One rank's worker over a connected UDP socket that doesn't block.

    Not for several threads at once. Addresses of buffers are the caller's to keep alive.
    """

    def __init__(self, socket: int, control: int, **config: Any) -> None:
        """socket, control: descriptors (control: -1 for none). config: of struct worker_config."""
        self._lib, self._ffi = library()
        self._socket, self._control = socket, control
        self._stop = self._ffi.new("uint32_t *", 0)
        self._worker = self._lib.worker_open(self._ffi.new("struct worker_config *", config))
        if self._worker == self._ffi.NULL:
            raise MltcpError(
                f"A worker with {config['slots']} slots of {config['values']} values among"
                f" {config['workers']} workers is impossible, or there is no memory for it."
            )

    def reduce(
        self,
        source: int,
        target: int,
        count: int,
        kind: Kind,
        how: How,
        timeout_s: float,
        chunks: Chunks | None = None,
    ) -> State:
        """One collective over `count` elements from address `source` into address `target`.

        chunks: to leave zeros out: chunks that are zero everywhere aren't written to, and
        chunks.summed() tells which were. Other threads run meanwhile. timeout_s: seconds without
        progress to give up after.
        """
        ffi = self._ffi
        request = ffi.new(
            "struct worker_request *",
            {
                "from": ffi.cast("void *", source),
                "to": ffi.cast("void *", target),
                "count": count,
                "kind": int(kind),
                "how": int(how),
            },
        )
        if chunks:
            request.marks = ffi.from_buffer("uint8_t[]", chunks.marks)
            request.slots = chunks.slots
        ended = self._lib.worker_reduce(
            self._worker, self._socket, self._control, request, int(timeout_s * 1e9), self._stop
        )
        return State(ended)

    def chunk(self, kind: Kind) -> int:
        """Count a packet's elements of a kind."""
        return int(self._lib.worker_chunk(self._worker, int(kind)))

    def count_present(
        self, source: int, count: int, kind: Kind, block: int, chunks: Chunks | None = None
    ) -> tuple[int, int]:
        """Count a tensor's chunks, and its blocks of `block` values, that aren't zero.

        chunks: where there are sums; elsewhere is nothing.
        """
        ffi = self._ffi
        marks = ffi.from_buffer("uint8_t[]", chunks.marks) if chunks else ffi.NULL
        blocks = ffi.new("uint64_t *")
        at = ffi.cast("void *", source)
        found = self._lib.count_present(
            at, int(kind), count, self.chunk(kind), marks, block, blocks
        )
        return int(found), int(blocks[0])

    def copy_summed(self, chunks: Chunks, source: int, target: int, count: int, kind: Kind) -> None:
        """Copy the chunks that were summed, and make -0 to 0 in those of `target` that weren't."""
        marks = self._ffi.from_buffer("uint8_t[]", chunks.marks)
        to = self._ffi.cast("void *", target)
        source_at = self._ffi.cast("void *", source)
        self._lib.copy_summed(source_at, int(kind), count, chunks.values, marks, to)

    def counters(self) -> Counters:
        """Its counts so far."""
        to = self._ffi.new("struct worker_counters *")
        self._lib.worker_counters(self._worker, to)
        return Counters(**{name: int(getattr(to, name)) for name in Counters.__annotations__})

    def stop(self) -> None:
        """Have the collective that another thread runs, and each after it, end."""
        self._stop[0] = 1

    def close(self) -> None:
        """Free its memory. Closing twice is fine."""
        if self._worker is not None:
            self._lib.worker_close(self._worker)
            self._worker = None
