# SPDX-License-Identifier: BSD-2-Clause
"""The part of libbpf this project needs, called in the system's libbpf.so.1 through cffi.

Errors are BpfError with errno and what libbpf printed meanwhile; successful calls print
nothing.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from pathlib import Path
from typing import Any

from cffi import FFI

from mltcp_tools.base.errors import HostError, UnknownError

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
int bpf_prog_query(int target_fd, int type, uint32_t flags, uint32_t *attach_flags,
                   uint32_t *ids, uint32_t *count);
int bpf_enable_stats(int type);
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
int bpf_map__reuse_fd(void *map, int fd);
int bpf_map__set_pin_path(void *map, const char *path);
void *bpf_program__attach_cgroup(const void *program, int cgroup_fd);
int libbpf_num_possible_cpus(void);
int bpf_program__fd(const void *program);
void *bpf_program__attach_raw_tracepoint(const void *program, const char *name);
void *bpf_program__attach_xdp(const void *program, int ifindex);
int bpf_map_create(int type, const char *name, uint32_t key_size, uint32_t value_size,
                   uint32_t max_entries, const void *opts);
void *bpf_map__attach_struct_ops(const void *map);
void *bpf_program__attach_iter(const void *program, const struct bpf_iter_attach_opts *opts);
int bpf_link__fd(const void *link);
int bpf_link__pin(void *link, const char *path);
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
int ring_buffer__epoll_fd(const void *ring);
int ring_buffer__poll(void *ring, int timeout_ms);
void ring_buffer__free(void *ring);
int vasprintf(char **to, const char *format, void *arguments);
void free(void *memory);
"""

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
            # The verifier's whole log is one message, and says its reason last.
            written = ffi.new("char **")
            if libc.vasprintf(written, text, arguments) >= 0:
                self.messages.append(ffi.string(written[0]).decode(errors="replace"))
                libc.free(written[0])
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


def check(result: int, what: str) -> int:
    """The result of a call; BpfError where it is an error."""
    if result < 0:
        raise BpfError(_code(result), what, library().take_log())
    return result


def found(result: int, what: str) -> int | None:
    """The result of a look-up; None where the kernel says that there is nothing (ENOENT).

    UnknownError where it couldn't be asked.
    """
    if result >= 0:
        return result
    code = _code(result)
    if code == errno.ENOENT:
        return None
    log = " ".join(library().take_log().split())
    raise _unknown(code) or UnknownError(
        f"{what[:1].upper()}{what[1:]} failed, so it isn't known what is there:"
        f" {os.strerror(code)}. {log}".rstrip()
    )


def require_answers() -> None:
    """Raise unless the kernel tells this process of its BPF maps.

    UnknownError where something between keeps it from telling, and HostError where it has no BPF.
    """
    code = _refusal()
    if code == errno.ENOSYS and not _is_filtered():
        raise HostError("This kernel has no BPF; boot one built with CONFIG_BPF_SYSCALL=y.")
    if code:
        raise _unknown(code) or UnknownError(f"The kernel doesn't list maps: {os.strerror(code)}.")


def _refusal() -> int:
    """The errno with which the kernel refuses to list maps; 0 where it lists them."""
    result = library().call.bpf_map_get_next_id(0, ffi.new("uint32_t *"))
    code = _code(result) if result < 0 else 0
    return 0 if code == errno.ENOENT else code


def _unknown(code: int) -> UnknownError | None:
    """The error where the kernel is kept from answering at all; None where it would answer."""
    if code not in (errno.EPERM, errno.EACCES, errno.ENOSYS) or not _refusal():
        return None
    if _is_filtered():
        return UnknownError(
            "A seccomp profile refuses bpf(), so what is loaded is unknown; run it on the host,"
            " or with --security-opt seccomp=unconfined (Kubernetes: seccompProfile: {type:"
            " Unconfined})."
        )
    return UnknownError(
        f"The kernel doesn't list what is loaded ({os.strerror(code)}); run it as root of the host"
        " (CAP_SYS_ADMIN in the first user namespace)."
    )


def _is_filtered() -> bool:
    """Return whether this process has a seccomp filter, by proc_pid_status(5)."""
    status = Path("/proc/thread-self/status").read_text()
    return re.search(r"^Seccomp:\s+2$", status, re.MULTILINE) is not None


def _code(result: int) -> int:
    """The errno of a call: most return it negated, bare system calls return -1 and set errno."""
    return ffi.errno if result == -1 and ffi.errno else -result
