# SPDX-License-Identifier: BSD-2-Clause
"""Maps in the kernel, those of struct_ops among them, and the reader of a ring buffer."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.native.libbpf import BpfError, check, ffi, found, library

MAP_TYPE_STRUCT_OPS = 26
CGROUP_SOCK_OPS = 3
"""enum bpf_attach_type."""

PROGRAM_TYPE_SCHED_CLS = 3
PROGRAM_TYPE_STRUCT_OPS = 27
STRUCT_OPS_INUSE = 1
"""enum bpf_struct_ops_state: registered with the kernel (include/linux/bpf.h)."""


class BpfMap(Closing):
    """A map by file descriptor, with keys and values as bytes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        info = ffi.new("struct bpf_map_info *")
        length = ffi.new("uint32_t *", ffi.sizeof("struct bpf_map_info"))
        check(library().call.bpf_obj_get_info_by_fd(fd, info, length), "map info")
        self.id: int = info.id
        self.type: int = info.type
        self.name: str = ffi.string(info.name).decode()
        self.key_size: int = info.key_size
        self.value_size: int = info.value_size

    @classmethod
    def pinned(cls, path: Path) -> BpfMap:
        """The map pinned at path; BpfError ENOENT when there is none."""
        return cls(check(library().call.bpf_obj_get(os.fsencode(path)), str(path)))

    @classmethod
    def find(cls, path: Path) -> BpfMap | None:
        """The map pinned at path; None when there is none. UnknownError when that can't be told."""
        fd = found(library().call.bpf_obj_get(os.fsencode(path)), f"opening {path}")
        return None if fd is None else cls(fd)

    @classmethod
    def create(cls, kind: int, name: str, key: int, value: int, entries: int) -> BpfMap:
        """A new map of a type (enum bpf_map_type) with keys and values of so many bytes."""
        made = library().call.bpf_map_create(kind, name.encode(), key, value, entries, ffi.NULL)
        return cls(check(made, f"making {name}"))

    def get(self, key: bytes) -> bytes | None:
        """The value, or None without one."""
        value = ffi.new("char[]", self.value_size)
        result = library().call.bpf_map_lookup_elem(self.fd, ffi.from_buffer(key), value)
        if found(result, f"reading {self.name}") is None:
            return None
        return bytes(ffi.buffer(value, self.value_size))

    def get_per_cpu(self, key: bytes) -> list[int]:
        """The 64-bit values of a per-CPU map, of every possible CPU."""
        cpus = library().call.libbpf_num_possible_cpus()
        values = ffi.new("uint64_t[]", cpus)
        check(
            library().call.bpf_map_lookup_elem(self.fd, ffi.from_buffer(key), values),
            f"reading {self.name}",
        )
        return [int(each) for each in values]

    def set(self, key: bytes, value: bytes) -> None:
        """Create or replace the value."""
        if len(key) != self.key_size or len(value) != self.value_size:
            raise ValueError(f"{self.name} takes {self.key_size} and {self.value_size} bytes")
        check(
            library().call.bpf_map_update_elem(
                self.fd, ffi.from_buffer(key), ffi.from_buffer(value), 0
            ),
            f"writing {self.name}",
        )

    def delete(self, key: bytes) -> bool:
        """Remove the value; False when there was none."""
        result = library().call.bpf_map_delete_elem(self.fd, ffi.from_buffer(key))
        if result and (ffi.errno == errno.ENOENT or result == -errno.ENOENT):
            return False
        check(result, f"deleting from {self.name}")
        return True

    def all_keys(self) -> list[bytes]:
        """All keys at this moment."""
        keys: list[bytes] = []
        key = ffi.NULL
        while True:
            following = ffi.new("char[]", self.key_size)
            result = library().call.bpf_map_get_next_key(self.fd, key, following)
            if found(result, f"listing {self.name}") is None:
                return keys
            keys.append(bytes(ffi.buffer(following, self.key_size)))
            key = following

    def close(self) -> None:
        """Close our descriptor. Closing twice is fine."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def struct_ops_maps() -> Iterator[BpfMap]:
    """Every struct_ops map of the host, each open while it is yielded."""
    call = library().call
    identifier = ffi.new("uint32_t *", 0)
    while found(call.bpf_map_get_next_id(identifier[0], identifier), "listing maps") is not None:
        yield from (each for each in _maps(identifier[0:1]) if each.type == MAP_TYPE_STRUCT_OPS)


def maps_of_programs(struct_ops: BpfMap) -> Iterator[BpfMap]:
    """The maps that the programs of a registered struct_ops map use, each open while it is yielded.

    The kernel shows the ids of the programs in place of its pointers to functions (since 5.6).
    """
    value = struct_ops.get(bytes(struct_ops.key_size)) or b""
    words = struct.unpack(f"={len(value) // 8}Q", value[: len(value) // 8 * 8])
    seen: set[int] = set()
    for word in words:
        seen.update(_map_ids(word, PROGRAM_TYPE_STRUCT_OPS) if 0 < word < 2**32 else ())
    yield from _maps(seen)


def maps_of_program(identifier: int) -> Iterator[BpfMap]:
    """The maps that the `tc` program with this id uses, each open while it is yielded."""
    yield from _maps(_map_ids(identifier, PROGRAM_TYPE_SCHED_CLS))


def _maps(identifiers: Iterable[int]) -> Iterator[BpfMap]:
    for identifier in identifiers:
        fd = found(library().call.bpf_map_get_fd_by_id(identifier), f"opening map {identifier}")
        if fd is not None:  # else gone since
            with BpfMap(fd) as opened:
                yield opened


def _map_ids(identifier: int, kind: int) -> list[int]:
    """Ids of the maps of a program of this kind; none where that is no such program's id."""
    maps = ffi.new("uint32_t[64]")
    info = _program_info(identifier, maps)
    return list(maps[0 : min(info.nr_map_ids, 64)]) if info and info.type == kind else []


def _program_info(identifier: int, maps: Any) -> Any:
    """The struct bpf_prog_info of a program, None where there is none. maps: gets map ids."""
    fd = found(library().call.bpf_prog_get_fd_by_id(identifier), f"opening program {identifier}")
    if fd is None:
        return None
    try:
        info = ffi.new("struct bpf_prog_info *")
        info.nr_map_ids, info.map_ids = len(maps), int(ffi.cast("uintptr_t", maps))
        length = ffi.new("uint32_t *", ffi.sizeof("struct bpf_prog_info"))
        check(library().call.bpf_obj_get_info_by_fd(fd, info, length), "program info")
        return info
    finally:
        os.close(fd)


def sock_ops_programs(cgroup: Path) -> list[str]:
    """Names of the sock_ops programs that are attached to the cgroup itself."""
    ids, count = ffi.new("uint32_t[64]"), ffi.new("uint32_t *", 64)
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        call = library().call.bpf_prog_query
        check(call(folder, CGROUP_SOCK_OPS, 0, ffi.NULL, ids, count), f"looking at {cgroup}")
    finally:
        os.close(folder)
    infos = [_program_info(each, ffi.new("uint32_t[1]")) for each in ids[0 : count[0]]]
    return [ffi.string(info.name).decode(errors="replace") for info in infos if info]


class RingReader(Closing):
    """Reads a ring buffer; one reader at a time, which is the caller's to see to."""

    def __init__(self, ring: BpfMap) -> None:
        self._samples: list[bytes] = []

        @ffi.callback("int(void *, void *, size_t)")  # type: ignore[untyped-decorator]
        def take(_context: Any, data: Any, size: int) -> int:
            self._samples.append(bytes(ffi.buffer(data, size)))
            return 0

        self._take = take
        self._ring = library().call.ring_buffer__new(ring.fd, take, ffi.NULL, ffi.NULL)
        if not self._ring:
            raise BpfError(ffi.errno, f"reading {ring.name}", library().take_log())

    def fileno(self) -> int:
        """Readable when there are samples."""
        return int(library().call.ring_buffer__epoll_fd(self._ring))

    def poll(self, timeout_s: float) -> list[bytes]:
        """Wait for the first sample at most timeout_s seconds; return all there are."""
        result = library().call.ring_buffer__poll(self._ring, round(timeout_s * 1000))
        if result < 0 and result != -errno.EINTR:
            check(result, "reading the ring buffer")
        samples, self._samples[:] = list(self._samples), []
        return samples

    def close(self) -> None:
        """Stop reading. Closing twice is fine."""
        if self._ring:
            library().call.ring_buffer__free(self._ring)
            self._ring = None
