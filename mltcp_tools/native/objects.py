"""Compiles the BPF objects with clang, once per version of sources and compiler."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from mltcp_tools.errors import HostError
from mltcp_tools.native.csources import cache_dir, digest, program_sources, source_root

CLANG_MIN = 13
"""The oldest clang the objects were compiled and loaded with."""

FLAGS = (
    "-O2",
    "-g",
    "-target",
    "bpf",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Werror",
)


def clang_version(text: str) -> int | None:
    """Major version from the output of `clang --version`, None when it names none."""
    match = re.search(r"clang version (\d+)", text)
    return int(match[1]) if match else None


def find_clang() -> tuple[str, str]:
    """Path of a clang that is new enough, and the first line of its --version."""
    path = os.environ.get("CLANG") or shutil.which("clang")
    if not path:
        raise HostError("clang is not installed; it compiles the BPF programs: apt install clang")
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise HostError(f"{path} --version failed ({error}); reinstall clang.") from error
    line = output.stdout.partition("\n")[0]
    version = clang_version(line)
    if version is None or version < CLANG_MIN:
        raise HostError(
            f"{path} is {line!r}; the BPF programs need clang {CLANG_MIN} or newer: apt install "
            "clang, or name one in the environment variable CLANG."
        )
    return path, line


def multiarch_include() -> str:
    """Option for Debian's folder of asm/types.h, where clang -target bpf doesn't look."""
    return f"-I/usr/include/{platform.machine()}-linux-gnu"


def kernel_defines(btf: Path = Path("/sys/kernel/btf/vmlinux")) -> tuple[str, ...]:
    """Options for what differs between kernels and CO-RE can't settle at load time.

    libbpf 1.1 refuses members that the kernel's struct lacks, so those are left out by name.
    """
    names = btf.read_bytes()
    found = [name for name in ("cwnd_event_tx_start",) if b"\0%b\0" % name.encode() in names]
    return tuple(f"-DHAVE_{name.upper()}" for name in found)


def build_object(name: str) -> Path:
    """The compiled bpf/NAME.bpf.c, from the cache when nothing it depends on has changed."""
    root = source_root()
    clang, version = find_clang()
    flags = (*FLAGS, *kernel_defines(), multiarch_include())
    target = cache_dir() / f"{name}-{digest(program_sources(), version, *flags)}.bpf.o"
    if target.is_file():
        return target
    descriptor, scratch = tempfile.mkstemp(suffix=".o", dir=target.parent)
    os.close(descriptor)
    try:
        source = root / "bpf" / f"{name}.bpf.c"
        command = [clang, *flags, "-c", str(source), "-o", scratch]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            if "bpf/bpf_helpers.h" in run.stderr:
                raise HostError("The libbpf headers are not installed: apt install libbpf-dev")
            raise HostError(f"clang could not compile {source}:\n{run.stderr.strip()}")
        os.replace(scratch, target)
    finally:
        Path(scratch).unlink(missing_ok=True)
    return target
