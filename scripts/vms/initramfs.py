# SPDX-License-Identifier: BSD-2-Clause
"""The VM's first root: busybox, the modules it takes to mount the host's, our init."""

from __future__ import annotations

import lzma
from collections.abc import Mapping
from pathlib import Path

from vms.common import VmError, missing
from vms.kernels import Kernel, unzstd

BUSYBOX = Path("bin/busybox")  # Debian's busybox-static: no libraries
INIT = Path(__file__).with_name("init")

NEEDED = ("virtio_pci", "virtio_console", "virtio_rng", "9pnet_virtio", "9p", "overlay")
"""Modules without which there is no root; some are part of some kernels."""


def initramfs(kernel: Kernel, root: Path, files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An archive that the kernel unpacks. root: of the VM; files: more (mode, content) by path, for
    this run."""
    if not (root / BUSYBOX).exists():
        raise missing("busybox-static")
    archive = CpioArchive()
    for folder in ("bin", "dev", "modules", "proc", "sys", "vm"):
        archive.add(folder, 0o40755)
    archive.add("bin/busybox", 0o100755, (root / BUSYBOX).read_bytes())
    archive.add("init", 0o100755, INIT.read_bytes())
    for number, path in enumerate(module_files(kernel)):
        name = f"modules/{number:02}-{path.name.partition('.')[0]}.ko"
        archive.add(name, 0o100644, read_module(path))
    for name, (mode, content) in files.items():
        archive.add(name, 0o100000 | mode, content)
    return archive.finish()


def module_files(kernel: Kernel) -> list[Path]:
    """The modules of NEEDED and what they need, in the order in which they load."""
    base = kernel.modules / kernel.version
    needs: dict[str, list[str]] = {}
    for line in (base / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = rest.split()
    by_name = {Path(path).name.partition(".")[0].replace("-", "_"): path for path in needs}
    ordered: dict[Path, None] = {}
    for name in NEEDED:
        if name in by_name:  # else it is built in
            path = by_name[name]
            # modules.dep names what a module needs directly or not, the deepest last
            for each in (*reversed(needs[path]), path):
                ordered[base / each] = None
    return list(ordered)


def read_module(path: Path) -> bytes:
    """A module, unpacked."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return unzstd(path.read_bytes())
    if path.suffix == ".ko":
        return path.read_bytes()
    raise VmError(f"{path.name} is packed in a way scripts/vm doesn't know.")


class CpioArchive:
    """An archive in the format "newc" (Documentation/driver-api/early-userspace)."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._number = 0

    def add(self, name: str, mode: int, content: bytes = b"") -> None:
        self._number += 1
        path = name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device (4 numbers), length of name, checksum
        fields = (self._number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        for part in (head, content):
            self._parts.append(part + bytes(-len(part) % 4))

    def finish(self) -> bytes:
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)
