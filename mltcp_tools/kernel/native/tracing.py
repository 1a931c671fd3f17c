# SPDX-License-Identifier: BSD-2-Clause
"""Programs for the kernel's tracing, compiled at run time by the distribution's bcc.

bcc compiles against the running kernel's headers and gives up without them. The programs here that
need none of the kernel's own types say so, and are given a folder in which bcc finds what its own
preamble includes: the C library's headers, and empty files for the rest.
"""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import HostError
from mltcp_tools.base.installation import how_to_bring_bcc
from mltcp_tools.kernel.native.csources import source_root

_SOURCE_VARIABLE = "BCC_KERNEL_SOURCE"

_INCLUDE = Path("/usr/include")
_TAKEN = ("types.h", "posix_types.h", "stddef.h", "bpf_common.h", "version.h")
_EMPTY = ("linux/log2.h", "asm/page.h", "uapi/linux/bpf.h", "uapi/linux/if_packet.h")
_PREAMBLE = """\
#define CONFIG_BPF_SYSCALL 1
#include <linux/types.h>
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
typedef __SIZE_TYPE__ size_t;
typedef __UINTPTR_TYPE__ uintptr_t;
struct pt_regs;
"""


def compile_program(name: str) -> Any:
    """The bcc.BPF of bpf/NAME.bcc.c, which needs none of the kernel's types.

    Raises HostError, with the reason, where bcc isn't there, or can't compile or load it.
    """
    try:
        import bcc

        bpf = bcc.BPF
    except (ImportError, AttributeError) as error:
        raise HostError(f"bcc can't be imported; {how_to_bring_bcc()}.") from error
    folder = source_root() / "bpf"
    source = (folder / f"{name}.bcc.c").read_bytes()
    with _small_headers(), _silence() as output:
        try:
            return bpf(text=source, cflags=[f"-I{folder}"])
        except Exception as error:  # bcc raises Exception itself
            output.seek(0)
            why = _reason(output.read().decode(errors="replace"), error)
    raise HostError(f"bcc can't compile or load {name}.bcc.c: {why}")


@contextlib.contextmanager
def _small_headers() -> Iterator[None]:
    """Let bcc take a folder of the few headers it asks for in place of the kernel's."""
    before = os.environ.get(_SOURCE_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="mltcp-bcc-") as folder:
        _fill(Path(folder))
        os.environ[_SOURCE_VARIABLE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SOURCE_VARIABLE]
            else:
                os.environ[_SOURCE_VARIABLE] = before


def _fill(folder: Path) -> None:
    include = folder / "include"
    for name in _EMPTY:
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).touch()
    for name in _TAKEN:
        (include / "linux" / name).symlink_to(_INCLUDE / "linux" / name)
    (include / "linux" / "kconfig.h").write_text(_PREAMBLE)
    machine = platform.machine()
    (folder / "arch" / {"x86_64": "x86", "aarch64": "arm64"}.get(machine, machine)).mkdir(
        parents=True
    )
    (include / "asm-generic").symlink_to(_INCLUDE / "asm-generic")
    own = _INCLUDE / f"{machine}-linux-gnu" / "asm"  # Debian's place; elsewhere /usr/include/asm
    for header in (own if own.is_dir() else _INCLUDE / "asm").glob("*.h"):
        if not (include / "asm" / header.name).exists():
            (include / "asm" / header.name).symlink_to(header)


@contextlib.contextmanager
def _silence() -> Iterator[Any]:
    """Keep what the compiler writes to the standard error output, in a file to read."""
    with tempfile.TemporaryFile() as output:
        kept = os.dup(2)
        try:
            os.dup2(output.fileno(), 2)
            yield output
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _reason(output: str, error: Exception) -> str:
    for line in output.splitlines():
        if "error:" in line or line.startswith("bpf:"):
            return line.strip()
    return (output.strip().splitlines() or [str(error)])[-1].strip()
