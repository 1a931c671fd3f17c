"""The part of libbpf this project needs, called in the system's libbpf.so.1 through cffi.

Errors are BpfError with errno and what libbpf printed meanwhile; successful calls print
nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from cffi import FFI

from mltcp_tools.errors import HostError

_CDEF = """
struct bpf_object_open_opts {
    size_t sz;
    const char *object_name;
    bool relaxed_maps;
    const char *pin_root_path;
};
struct bpf_iter_attach_opts { size_t sz; void *link_info; uint32_t link_info_len; };
struct bpf_map_info {
    uint32_t type, id, key_size, value_size, max_entries, map_flags;
    char name[16];
};
struct bpf_prog_info {
    uint32_t type, id;
    uint8_t tag[8];
    uint32_t jited_prog_len, xlated_prog_len;
    uint64_t jited_prog_insns, xlated_prog_insns, load_time;
    uint32_t created_by_uid, nr_map_ids;
    uint64_t map_ids;
    char name[16];
};
int bpf_prog_get_fd_by_id(uint32_t id);
int libbpf_set_print(int (*print)(int level, const char *format, void *arguments));
const char *libbpf_version_string(void);
void *bpf_object__open_file(const char *path, const struct bpf_object_open_opts *opts);
int bpf_object__load(void *object);
void bpf_object__close(void *object);
void *bpf_object__find_map_by_name(const void *object, const char *name);
void *bpf_object__find_program_by_name(const void *object, const char *name);
int bpf_map__set_initial_value(void *map, const void *data, size_t size);
int bpf_map__set_max_entries(void *map, uint32_t max_entries);
int bpf_map__fd(const void *map);
int libbpf_num_possible_cpus(void);
int bpf_program__fd(const void *program);
void *bpf_program__attach_xdp(const void *program, int ifindex);
int bpf_map_create(int type, const char *name, uint32_t key_size, uint32_t value_size,
                   uint32_t max_entries, const void *opts);
void *bpf_map__attach_struct_ops(const void *map);
int bpf_prog_attach(int program_fd, int target_fd, int type, unsigned int flags);
void *bpf_program__attach_iter(const void *program, const struct bpf_iter_attach_opts *opts);
int bpf_link__fd(const void *link);
void bpf_link__disconnect(void *link);
int bpf_link__destroy(void *link);
int bpf_iter_create(int link_fd);
int bpf_obj_get(const char *path);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_delete_elem(int fd, const void *key);
int bpf_map_get_next_key(int fd, const void *key, void *next_key);
int bpf_map_get_next_id(uint32_t start_id, uint32_t *next_id);
int bpf_map_get_fd_by_id(uint32_t id);
int bpf_obj_get_info_by_fd(int fd, void *info, uint32_t *length);
void *ring_buffer__new(int fd, int (*sample)(void *context, void *data, size_t size),
                       void *context, const void *opts);
int ring_buffer__poll(void *ring, int timeout_ms);
void ring_buffer__free(void *ring);
int vsnprintf(char *to, size_t size, const char *format, void *arguments);
"""

MAP_TYPE_STRUCT_OPS = 26
CGROUP_SOCK_OPS = 3
"""enum bpf_attach_type."""
PROGRAM_TYPE_SCHED_CLS = 3
PROGRAM_TYPE_STRUCT_OPS = 27
STRUCT_OPS_INUSE = 1
"""enum bpf_struct_ops_state: registered with the kernel (include/linux/bpf.h)."""

ffi = FFI()
ffi.cdef(_CDEF)


class BpfError(HostError):
    """A libbpf call failed with `errno`; `log` is what libbpf and the verifier printed about it."""

    def __init__(self, code: int, what: str, log: str = "") -> None:
        super().__init__(f"{what[:1].upper()}{what[1:]} failed: {os.strerror(code)}.")
        self.errno = code
        self.log = log


class _Library:
    """libbpf.so.1, opened once, with its messages collected instead of printed."""

    def __init__(self) -> None:
        try:
            self.call: Any = ffi.dlopen("libbpf.so.1")
        except OSError as error:
            raise HostError("libbpf.so.1 is not installed: apt install libbpf1") from error
        self.messages: list[str] = []
        libc: Any = ffi.dlopen(None)

        # A va_list parameter arrives as a pointer in the x86-64 and arm64 calling conventions.
        @ffi.callback("int(int, const char *, void *)")  # type: ignore[untyped-decorator]
        def collect(level: int, text: Any, arguments: Any) -> int:
            buffer = ffi.new("char[4096]")
            libc.vsnprintf(buffer, 4096, text, arguments)
            self.messages.append(ffi.string(buffer).decode(errors="replace"))
            return 0

        self._collect = collect  # cffi frees a callback that nobody refers to
        self.call.libbpf_set_print(collect)

    def take_log(self) -> str:
        log = "".join(self.messages)
        self.messages.clear()
        return log


@functools.cache
def library() -> _Library:
    """The library; HostError when libbpf.so.1 isn't there."""
    return _Library()


def version() -> str:
    """Version of libbpf, such as `v1.1`."""
    text: bytes = ffi.string(library().call.libbpf_version_string())
    return text.decode()


def _check(result: int, what: str) -> int:
    if result < 0:
        # Calls return -errno; those that are bare system calls return -1 and set errno.
        code = ffi.errno if result == -1 and ffi.errno else -result
        raise BpfError(code, what, library().take_log())
    return result


class BpfObject:
    """A loaded object file. A context manager: leaving it closes our handles, not the kernel's
    registrations and pins."""

    def __init__(
        self,
        path: Path,
        pin_root: Path | None,
        initial: dict[str, bytes] | None = None,
        sizes: dict[str, int] | None = None,
    ) -> None:
        """Open, set the initial values of read-only sections and how many entries maps have, load;
        maps that ask for it are pinned below pin_root, or taken from there when already pinned."""
        lib = library()
        lib.take_log()
        self._links: list[Any] = []
        self._pin_root = ffi.new("char[]", os.fsencode(pin_root)) if pin_root else ffi.NULL
        opts = ffi.new(
            "struct bpf_object_open_opts *",
            {"sz": ffi.sizeof("struct bpf_object_open_opts"), "pin_root_path": self._pin_root},
        )
        self._object = lib.call.bpf_object__open_file(os.fsencode(path), opts)
        if not self._object:
            raise BpfError(ffi.errno, f"opening {path.name}", lib.take_log())
        try:
            for section, value in (initial or {}).items():
                _check(
                    lib.call.bpf_map__set_initial_value(self._map(section), value, len(value)),
                    f"setting {section}",
                )
            for name, entries in (sizes or {}).items():
                _check(
                    lib.call.bpf_map__set_max_entries(self._map(name), entries), f"sizing {name}"
                )
            _check(lib.call.bpf_object__load(self._object), f"loading {path.name}")
        except BaseException:
            self.close()
            raise

    def _map(self, name: str) -> Any:
        found = library().call.bpf_object__find_map_by_name(self._object, name.encode())
        if not found:
            raise BpfError(errno.ENOENT, f"map {name}")
        return found

    def register_struct_ops(self, name: str) -> None:
        """Register the struct_ops map with the kernel; it stays when the object is closed."""
        lib = library()
        link = lib.call.bpf_map__attach_struct_ops(self._map(name))
        if not link:
            raise BpfError(ffi.errno, f"registering {name}", lib.take_log())
        lib.call.bpf_link__disconnect(link)
        lib.call.bpf_link__destroy(link)

    def attach_to_cgroup(self, program: str, cgroup: int, kind: int) -> None:
        """Attach a program, next to others, to the cgroup open as a descriptor; it stays there
        until the cgroup is removed. kind: of enum bpf_attach_type."""
        flags = 2  # BPF_F_ALLOW_MULTI
        result = library().call.bpf_prog_attach(self.program_fd(program), cgroup, kind, flags)
        _check(result, f"attaching {program}")

    def attach_map_iterator(self, program: str, map_fd: int) -> Callable[[], int]:
        """Attach an iterator over a map; each call of the result opens a reader and returns its
        file descriptor. The iterator ends with the object."""
        lib = library()
        found = self._program(program)
        info = ffi.new("uint32_t *", map_fd)
        opts = ffi.new(
            "struct bpf_iter_attach_opts *",
            {
                "sz": ffi.sizeof("struct bpf_iter_attach_opts"),
                "link_info": info,
                "link_info_len": 4,
            },
        )
        link = lib.call.bpf_program__attach_iter(found, opts)
        if not link:
            raise BpfError(ffi.errno, f"attaching {program}", lib.take_log())
        self._links.append(link)
        return lambda: _check(lib.call.bpf_iter_create(lib.call.bpf_link__fd(link)), program)

    def map(self, name: str) -> BpfMap:
        """A map of the object, by a descriptor of its own."""
        return BpfMap(os.dup(library().call.bpf_map__fd(self._map(name))))

    def program_fd(self, name: str) -> int:
        """The descriptor of a program, as long as the object is open."""
        return _check(library().call.bpf_program__fd(self._program(name)), f"program {name}")

    def attach_xdp(self, name: str, interface: int) -> None:
        """Attach a program to an interface by its index, until the object is closed."""
        lib = library()
        link = lib.call.bpf_program__attach_xdp(self._program(name), interface)
        if not link:
            raise BpfError(ffi.errno, f"attaching {name}", lib.take_log())
        self._links.append(link)

    def _program(self, name: str) -> Any:
        found = library().call.bpf_object__find_program_by_name(self._object, name.encode())
        if not found:
            raise BpfError(errno.ENOENT, f"program {name}")
        return found

    def close(self) -> None:
        """Close our handles. Closing twice is fine."""
        while self._links:
            library().call.bpf_link__destroy(self._links.pop())
        if self._object:
            library().call.bpf_object__close(self._object)
            self._object = None

    def __enter__(self) -> BpfObject:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BpfMap:
    """A map by file descriptor, with keys and values as bytes."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        info = ffi.new("struct bpf_map_info *")
        length = ffi.new("uint32_t *", ffi.sizeof("struct bpf_map_info"))
        _check(library().call.bpf_obj_get_info_by_fd(fd, info, length), "map info")
        self.id: int = info.id
        self.type: int = info.type
        self.name: str = ffi.string(info.name).decode()
        self.key_size: int = info.key_size
        self.value_size: int = info.value_size

    @classmethod
    def pinned(cls, path: Path) -> BpfMap:
        """The map pinned at path; BpfError ENOENT when there is none."""
        return cls(_check(library().call.bpf_obj_get(os.fsencode(path)), str(path)))

    @classmethod
    def create(cls, kind: int, name: str, key: int, value: int, entries: int) -> BpfMap:
        """A new map of a type (enum bpf_map_type) with keys and values of so many bytes."""
        made = library().call.bpf_map_create(kind, name.encode(), key, value, entries, ffi.NULL)
        return cls(_check(made, f"making {name}"))

    def get(self, key: bytes) -> bytes | None:
        """The value, or None without one."""
        value = ffi.new("char[]", self.value_size)
        result = library().call.bpf_map_lookup_elem(self.fd, ffi.from_buffer(key), value)
        if result and (ffi.errno == errno.ENOENT or result == -errno.ENOENT):
            return None
        _check(result, f"reading {self.name}")
        return bytes(ffi.buffer(value, self.value_size))

    def get_per_cpu(self, key: bytes) -> list[int]:
        """The 64-bit values of a per-CPU map, of every possible CPU."""
        cpus = library().call.libbpf_num_possible_cpus()
        values = ffi.new("uint64_t[]", cpus)
        _check(
            library().call.bpf_map_lookup_elem(self.fd, ffi.from_buffer(key), values),
            f"reading {self.name}",
        )
        return [int(each) for each in values]

    def set(self, key: bytes, value: bytes) -> None:
        """Create or replace the value."""
        if len(key) != self.key_size or len(value) != self.value_size:
            raise ValueError(f"{self.name} takes {self.key_size} and {self.value_size} bytes")
        _check(
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
        _check(result, f"deleting from {self.name}")
        return True

    def all_keys(self) -> list[bytes]:
        """All keys at this moment."""
        found: list[bytes] = []
        key = ffi.NULL
        while True:
            following = ffi.new("char[]", self.key_size)
            if library().call.bpf_map_get_next_key(self.fd, key, following):
                return found
            found.append(bytes(ffi.buffer(following, self.key_size)))
            key = following

    def close(self) -> None:
        """Close our descriptor. Closing twice is fine."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> BpfMap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def struct_ops_maps() -> Iterator[BpfMap]:
    """Every struct_ops map of the host, each open while it is yielded."""
    lib = library()
    identifier = ffi.new("uint32_t *", 0)
    while lib.call.bpf_map_get_next_id(identifier[0], identifier) == 0:
        fd = lib.call.bpf_map_get_fd_by_id(identifier[0])
        if fd < 0:
            continue  # gone since
        with BpfMap(fd) as found:
            if found.type == MAP_TYPE_STRUCT_OPS:
                yield found


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
        fd = library().call.bpf_map_get_fd_by_id(identifier)
        if fd < 0:
            continue  # gone since
        with BpfMap(fd) as found:
            yield found


def _map_ids(identifier: int, kind: int) -> list[int]:
    """Ids of the maps of a program of this kind; none where that is no such program's id."""
    fd = library().call.bpf_prog_get_fd_by_id(identifier)
    if fd < 0:
        return []
    try:
        info = ffi.new("struct bpf_prog_info *")
        maps = ffi.new("uint32_t[64]")
        info.nr_map_ids, info.map_ids = 64, int(ffi.cast("uintptr_t", maps))
        length = ffi.new("uint32_t *", ffi.sizeof("struct bpf_prog_info"))
        _check(library().call.bpf_obj_get_info_by_fd(fd, info, length), "program info")
        if info.type != kind:
            return []
        return list(maps[0 : min(info.nr_map_ids, 64)])
    finally:
        os.close(fd)


class RingReader:
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

    def poll(self, timeout_s: float) -> list[bytes]:
        """Wait for the first sample at most timeout_s seconds; return all there are."""
        result = library().call.ring_buffer__poll(self._ring, round(timeout_s * 1000))
        if result < 0 and result != -errno.EINTR:
            _check(result, "reading the ring buffer")
        samples, self._samples[:] = list(self._samples), []
        return samples

    def close(self) -> None:
        """Stop reading. Closing twice is fine."""
        if self._ring:
            library().call.ring_buffer__free(self._ring)
            self._ring = None
