# SPDX-License-Identifier: BSD-2-Clause
"""Builds the kernel module for a kernel of the cache, with the compiler that kernel wants.

And the modules that tests load beside it, of tests/vm/programs/modules.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from vms.common import CACHE, CHECKOUT, LACKING, VmError, call, lock, say
from vms.kernels import FOREIGN, UBUNTU, Kernel, suite_sources

MODULE = "tcp_mltcp.ko"

FOR_TESTS = Path("tests", "vm", "programs", "modules")

CHROOTED = {"trixie-backports": "trixie", "noble": "trixie"}
"""Suites whose kernels need a newer compiler and C library than Debian 12's, and who has them."""

_BARE = ("base-files", "busybox-static", "coreutils", "dash", "grep")
ROOTS = {
    **dict.fromkeys(FOREIGN, (*_BARE, "iproute2", "kmod", "libbpf1", "python3")),
    "trixie": ("gcc", "make", "pahole", "kmod"),
}
"""Packages of each small Debian beside this machine's: VMs' roots, and what has a compiler."""

KEPT = 5
"""Builds of the module that are kept for each kernel."""

BUILT = (".ko", ".o", ".a", ".mod", ".cmd", ".mod.c", ".order", ".symvers")


def build_module(kernel: Kernel) -> Path:
    """Build for the kernel what is in kmod/ now, unless that is built already; a folder to mount as
    the VM's /lib/modules.

    It is the kernel's own with tcp_mltcp.ko and the tests' modules in VERSION/updates, listed by
    depmod: installed, and so loadable by their names, but not loaded.
    """
    builds = CACHE / "modules" / kernel.suite
    builds.mkdir(parents=True, exist_ok=True)
    with lock(f"build-{kernel.suite}"), lock(kernel.suite, shared=True):
        folder = builds / _digest(kernel)
        if folder.exists():
            os.utime(folder)
        else:
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=builds))
            try:
                _install(kernel, _build(kernel, new), new)
                new.chmod(0o755)
                new.rename(folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        # VMs may run with some of the others.
        old = sorted(builds.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]
        for path in old:
            shutil.rmtree(path)
    return folder / "lib" / "modules"


def _build(kernel: Kernel, folder: Path) -> list[Path]:
    """Build in a copy below the folder: the sources' own can't hold objects for several kernels."""
    copy = folder / "build"
    for path in _sources():
        target = copy / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    say(f"building {MODULE} for {kernel.version}")
    # Ubuntu's headers name the version of gcc that is the default there.
    make = ["make", *(["CC=gcc"] if kernel.suite in UBUNTU else [])]
    make += ["ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-"] if kernel.suite in FOREIGN else []
    make += ["-C"]
    _make(kernel, [*make, str(copy / "kmod"), f"KDIR={kernel.build}", "module"])
    _make(kernel, [*make, str(kernel.build), f"M={copy / FOR_TESTS}", "modules"])
    for_tests = sorted((copy / FOR_TESTS).glob("*.ko"))
    if "CONFIG_DEBUG_INFO_BTF=y" in kernel.config.read_text().splitlines():
        _describe(kernel, for_tests)
    return [copy / "kmod" / MODULE, *for_tests]


def _make(kernel: Kernel, command: list[str]) -> None:
    if kernel.suite in CHROOTED:
        command = _in_chroot(small_debian(CHROOTED[kernel.suite]), command)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        raise VmError(f"A module could not be built for {kernel.version}; see above.")


def _describe(kernel: Kernel, modules: list[Path]) -> None:
    """Add type information (BTF) where the kernel's headers lack what it takes to make it."""
    if (kernel.build / "vmlinux").exists() or kernel.suite in FOREIGN:
        return
    env = {**os.environ, "LLVM_OBJCOPY": "objcopy"}
    for module in modules:
        call(["pahole", "-J", "--btf_base", kernel.image, module], env=env)


def _install(kernel: Kernel, built: list[Path], folder: Path) -> None:
    """Make the folder's lib/modules of links to the kernel's, and of the modules."""
    modules = folder / "lib" / "modules"
    modules.mkdir(parents=True)
    call(["cp", "-al", kernel.modules / kernel.version, modules])
    for path in (modules / kernel.version).glob("modules.*"):
        # depmod would write into the kernel's own
        copy = path.with_name(f"{path.name}.new")
        shutil.copy2(path, copy)
        copy.replace(path)
    updates = modules / kernel.version / "updates"
    updates.mkdir()
    for path in built:
        shutil.copy2(path, updates)
    call(["depmod", "-b", folder, kernel.version])
    shutil.rmtree(folder / "build")


def _sources() -> list[Path]:
    """Everything the modules are made of: their folders, and the file that holds the version."""
    return [
        CHECKOUT / "mltcp_tools" / "__init__.py",
        *sorted(
            path
            for folder in (CHECKOUT / "kmod", CHECKOUT / FOR_TESTS)
            for path in folder.iterdir()
            if path.is_file() and not path.name.startswith(".") and not path.name.endswith(BUILT)
        ),
    ]


def _digest(kernel: Kernel) -> str:
    """A name for what decides how the module comes out."""
    text = hashlib.sha256(f"{CHECKOUT} {kernel.version}".encode())
    text.update((kernel.modules / kernel.version / "modules.order").read_bytes())
    for path in _sources():
        text.update(f"{path.relative_to(CHECKOUT)} {path.stat().st_mode:o}".encode())
        text.update(path.read_bytes())
    return text.hexdigest()[:16]


def root_of(suite: str) -> Path:
    """The root of VMs with that kernel."""
    return small_debian(suite) if suite in FOREIGN else Path("/")


def small_debian(suite: str) -> Path:
    """The one of ROOTS, made once. For another machine its packages are only unpacked."""
    root = CACHE / f"{suite}-root"
    with lock(f"{suite}-root"):
        stamp = root / "packages"
        wanted = " ".join(ROOTS[suite])
        if stamp.exists() and stamp.read_text() == wanted:
            return root
        if os.geteuid() != 0:
            raise VmError(f"Making a Debian of {suite} needs root.", LACKING)
        say(f"making {root} with {wanted}: up to 500 MB")
        shutil.rmtree(root, ignore_errors=True)
        new = Path(tempfile.mkdtemp(prefix=f".new-{suite}-root-", dir=CACHE))
        foreign = ("--variant=extract", "--architectures=arm64")
        try:
            call(
                [
                    *("mmdebstrap", "--quiet"),
                    *(foreign if suite in FOREIGN else ("--variant=minbase",)),
                    *("--include", ",".join(ROOTS[suite])),
                    *(suite.removesuffix("-arm64"), new / "root"),
                    *suite_sources(suite),
                ]
            )
            (new / "root" / "packages").write_text(wanted)
            (new / "root").rename(root)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return root


def _in_chroot(root: Path, command: list[str]) -> list[str]:
    """The command in the chroot, which sees the checkout at its own path."""
    script = """
    set -e
    root=$0 checkout=$1
    shift
    mkdir -p "$root$checkout"
    mount --bind "$checkout" "$root$checkout"
    mount -t proc proc "$root/proc"
    exec chroot "$root" "$@"
    """
    return [
        *("unshare", "--mount", "--propagation", "private"),
        *("sh", "-c", script, str(root), str(CHECKOUT), *command),
    ]
