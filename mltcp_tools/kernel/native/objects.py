# SPDX-License-Identifier: BSD-2-Clause
"""The compiled BPF objects: those that came with the package, else what clang makes of the sources.

What it makes is kept, once per version of sources and compiler.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.native.csources import cache_dir, digest, program_sources, source_root

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


OPTIONAL_MEMBERS = ("cwnd_event_tx_start",)
"""Members that only some kernels' structs have, and that CO-RE can't settle when an object is
loaded: libbpf 1.1 refuses members that the kernel's struct lacks, so those are left out by name."""

SHIPPED = "objects"
"""The folder beside the sources with objects that were compiled for an installed package."""

_OF_SOURCES = "sources"
"""The file there with the digest of their sources."""


RUNNING = Path("/sys/kernel/btf/vmlinux")
"""The running kernel's type information; another's is in its file vmlinux."""


def kernel_defines(btf: Path = RUNNING) -> tuple[str, ...]:
    """Options for the OPTIONAL_MEMBERS that a kernel has."""
    names = btf.read_bytes()
    return _defines([name for name in OPTIONAL_MEMBERS if b"\0%b\0" % name.encode() in names])


def _defines(members: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"-DHAVE_{name.upper()}" for name in members)


def shipped_object(name: str, defines: Sequence[str], root: Path | None = None) -> Path | None:
    """The object that came with the package, compiled with these options from these very sources.

    None where there is none: in a checkout, or where the sources were edited since.
    """
    folder = (root or source_root()) / SHIPPED
    try:
        if (folder / _OF_SOURCES).read_text() != digest(program_sources()):
            return None
    except OSError:
        return None
    path = folder / _shipped_name(name, defines)
    return path if path.is_file() else None


def objects_shipped() -> bool:
    """Return whether this package has what `load` needs for this kernel, and so needs no
    compiler.
    """
    try:
        return shipped_object("mltcp", kernel_defines()) is not None
    except OSError:  # no BTF: nothing can be loaded at all
        return False


def _shipped_name(name: str, defines: Sequence[str]) -> str:
    return "".join((name, *defines)) + ".bpf.o"


def compile_all(folder: Path) -> list[Path]:
    """Compile every program in all variants into the folder, to be shipped; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / _OF_SOURCES]
    made[0].write_text(digest(program_sources()))
    clang, _ = find_clang()
    for source in sorted((source_root() / "bpf").glob("*.bpf.c")):
        for members in ((), OPTIONAL_MEMBERS):
            defines = _defines(members)
            made.append(folder / _shipped_name(source.name.removesuffix(".bpf.c"), defines))
            _compile(clang, source, defines, made[-1])
            _without_debugging(made[-1])
    return made


def _without_debugging(path: Path) -> None:
    """Take DWARF out of an object, where LLVM's strip is there: the kernel wants BTF alone."""
    if strip := shutil.which("llvm-strip"):
        subprocess.run([strip, "-g", path], check=True)


def build_object(name: str, btf: Path = RUNNING) -> Path:
    """The compiled bpf/NAME.bpf.c: the package's, or from the cache, or compiled now."""
    defines = kernel_defines(btf)
    if shipped := shipped_object(name, defines):
        return shipped
    clang, version = find_clang()
    flags = (*FLAGS, *defines, multiarch_include())
    target = cache_dir() / f"{name}-{digest(program_sources(), version, *flags)}.bpf.o"
    if not target.is_file():
        _compile(clang, source_root() / "bpf" / f"{name}.bpf.c", defines, target)
    return target


def _compile(clang: str, source: Path, defines: Sequence[str], target: Path) -> None:
    """Compile a program; the target is there whole or not at all."""
    descriptor, scratch = tempfile.mkstemp(suffix=".o", dir=target.parent)
    os.close(descriptor)
    try:
        flags = (*FLAGS, *defines, multiarch_include())
        command = [clang, *flags, "-c", str(source), "-o", scratch]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            if "'bpf/bpf_helpers.h' file not found" in run.stderr:
                raise HostError("The libbpf headers are not installed: apt install libbpf-dev")
            raise HostError(f"clang could not compile {source}:\n{run.stderr.strip()}")
        os.chmod(scratch, 0o644)
        os.replace(scratch, target)
    finally:
        Path(scratch).unlink(missing_ok=True)
