# SPDX-License-Identifier: BSD-2-Clause
"""A compiled BPF object file in the kernel: its programs and maps, through libbpf."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.libbpf import BpfError, check, ffi, library

_CHUNK = 1 << 14
"""Bytes to read at once. An iterator's buffer has 32 KiB; it runs the program once more for the
socket whose record found that full, which then isn't what was expected any more."""


class BpfObject(Closing):
    """A loaded object file. A context manager: leaving it closes our handles, not the kernel's
    registrations and pins."""

    def __init__(
        self,
        path: Path,
        pin_root: Path | None,
        initial: dict[str, bytes] | None = None,
        sizes: dict[str, int] | None = None,
        shared: Mapping[str, int] | None = None,
        pins: Mapping[str, Path] | None = None,
    ) -> None:
        """Open, set the initial values of read-only sections and how many entries maps have, load;
        maps that ask for it are pinned below pin_root, or taken from there when already pinned.

        shared: maps that are already there, by descriptors. pins: where to pin others, or to take
        them from.
        """
        lib = library()
        lib.take_log()
        self._links: list[Any] = []
        self._pin_root = ffi.new("char[]", os.fsencode(pin_root)) if pin_root else ffi.NULL
        opts = ffi.new(
            "struct bpf_object_open_opts *",
            {"sz": ffi.sizeof("struct bpf_object_open_opts"), "pin_root_path": self._pin_root},
        )
        opened = lib.call.bpf_object__open_file(os.fsencode(path), opts)
        self._object = _made(opened, f"opening {path.name}")
        try:
            for section, value in (initial or {}).items():
                check(
                    lib.call.bpf_map__set_initial_value(self._map(section), value, len(value)),
                    f"setting {section}",
                )
            for name, entries in (sizes or {}).items():
                check(lib.call.bpf_map__set_max_entries(self._map(name), entries), f"sizing {name}")
            for name, fd in (shared or {}).items():
                check(lib.call.bpf_map__reuse_fd(self._map(name), fd), f"sharing {name}")
            for name, pin in (pins or {}).items():
                where = ffi.new("char[]", os.fsencode(pin))
                check(lib.call.bpf_map__set_pin_path(self._map(name), where), f"pinning {name}")
            check(lib.call.bpf_object__load(self._object), f"loading {path.name}")
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
        link = _made(lib.call.bpf_map__attach_struct_ops(self._map(name)), f"registering {name}")
        lib.call.bpf_link__disconnect(link)
        lib.call.bpf_link__destroy(link)

    def link_to_cgroup(self, program: str, cgroup: int) -> Callable[[], None]:
        """Attach a program to the cgroup open as a descriptor; it ends with a call of the result,
        with the object, or with this process."""
        lib = library()
        attached = lib.call.bpf_program__attach_cgroup(self._program(program), cgroup)
        link = self._kept(attached, program)

        def end() -> None:
            if link in self._links:
                self._links.remove(link)
                lib.call.bpf_link__destroy(link)

        return end

    def pin_to_cgroup(self, program: str, cgroup: int, path: Path) -> None:
        """Attach a program to the cgroup open as a descriptor, until the path, in bpffs, goes."""
        call = library().call
        link = self._kept(call.bpf_program__attach_cgroup(self._program(program), cgroup), program)
        check(call.bpf_link__pin(link, str(path).encode()), f"pinning {program}")

    def attach_iterator(
        self, program: str, size: int, map_fd: int | None = None
    ) -> Callable[[], list[bytes]]:
        """Attach an iterator; each call of the result reads its records, each of `size` bytes.

        One over sockets walks over those of the network namespace in which it is called; with
        map_fd over those in that map, of all namespaces, whose records begin with their cookies,
        and gives one for each. The iterator ends with the object.
        """
        lib = library()
        found = self._program(program)
        info, opts = ffi.NULL, ffi.NULL
        if map_fd is not None:
            info = ffi.new("uint32_t *", map_fd)
            opts = ffi.new(
                "struct bpf_iter_attach_opts *",
                {
                    "sz": ffi.sizeof("struct bpf_iter_attach_opts"),
                    "link_info": info,
                    "link_info_len": 4,
                },
            )
        link = self._kept(lib.call.bpf_program__attach_iter(found, opts), program)

        def walk() -> bytes:
            fd = check(lib.call.bpf_iter_create(lib.call.bpf_link__fd(link)), program)
            with open(fd, "rb", buffering=0):
                return b"".join(iter(lambda: os.read(fd, _CHUNK), b""))

        def read() -> list[bytes]:
            data = walk()
            if map_fd is not None and len(data) > _CHUNK:
                # Between two reads the kernel counts from a list's beginning how far it was: it
                # skips as many as have left that part. The next walk finds them.
                data += walk()
            parts = [data[start : start + size] for start in range(0, len(data), size)]
            return parts if map_fd is None else list({each[:8]: each for each in parts}.values())

        return read

    def map(self, name: str) -> BpfMap:
        """A map of the object, by a descriptor of its own."""
        return BpfMap(os.dup(library().call.bpf_map__fd(self._map(name))))

    def program_fd(self, name: str) -> int:
        """The descriptor of a program, as long as the object is open."""
        return check(library().call.bpf_program__fd(self._program(name)), f"program {name}")

    def attach_to_tracepoint(self, program: str, tracepoint: str) -> None:
        """Attach a program to a raw tracepoint, until the object is closed."""
        call = library().call
        found = self._program(program)
        link = call.bpf_program__attach_raw_tracepoint(found, tracepoint.encode())
        self._kept(link, program)

    def attach_xdp(self, name: str, interface: int) -> None:
        """Attach a program to an interface by its index, until the object is closed."""
        call = library().call
        self._kept(call.bpf_program__attach_xdp(self._program(name), interface), name)

    def _kept(self, link: Any, program: str) -> Any:
        """The link of a program, which ends with the object."""
        self._links.append(_made(link, f"attaching {program}"))
        return link

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


def _made(found: Any, doing: str) -> Any:
    """The result of a call; raises BpfError where that is a null pointer."""
    if not found:
        raise BpfError(ffi.errno, doing, library().take_log())
    return found
