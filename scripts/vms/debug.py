# SPDX-License-Identifier: BSD-2-Clause
"""Builds a kernel that watches itself: KASAN, lockdep, kmemleak, UBSAN and their like."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from vms.common import CACHE, LACKING, VmError, call, lock, missing, say
from vms.kernels import DEBUG, STAMP, Apt, Kernel, cached, suite_sources

SOURCE = re.compile(r"linux-source-\d")
TOOLS = ("bc", "bison", "flex", "gcc", "make", "xz")

WATCHING = """
KASAN KASAN_GENERIC KASAN_INLINE KASAN_VMALLOC
PROVE_LOCKING PROVE_RCU DEBUG_ATOMIC_SLEEP DEBUG_LOCK_ALLOC
DEBUG_KMEMLEAK DEBUG_KMEMLEAK_AUTO_SCAN UBSAN UBSAN_BOUNDS UBSAN_SHIFT
DEBUG_LIST DEBUG_PLIST DEBUG_NOTIFIERS DEBUG_OBJECTS DEBUG_OBJECTS_FREE DEBUG_OBJECTS_TIMERS
DEBUG_OBJECTS_WORK DEBUG_OBJECTS_RCU_HEAD DEBUG_NET DEBUG_PREEMPT DETECT_HUNG_TASK
FAULT_INJECTION FAULT_INJECTION_DEBUG_FS FAILSLAB
SLUB_DEBUG SLUB_DEBUG_ON NET_DEV_REFCNT_TRACKER NET_NS_REFCNT_TRACKER STACKTRACE PREEMPT
"""

WORKING = """
MODULES MODULE_UNLOAD DEBUG_FS DEBUG_KERNEL HYPERVISOR_GUEST PARAVIRT PVH KALLSYMS
VIRTIO_MENU VIRTIO_PCI VIRTIO_CONSOLE HW_RANDOM HW_RANDOM_VIRTIO NET_9P NET_9P_VIRTIO 9P_FS
9P_FS_POSIX_ACL OVERLAY_FS TMPFS DEVTMPFS BPF_SYSCALL BPF_JIT CGROUPS CGROUP_BPF FTRACE
NAMESPACES NET_NS USER_NS PID_NS VETH DUMMY TUN BRIDGE USERFAULTFD
INET INET_DIAG INET_TCP_DIAG INET_DIAG_DESTROY IPV6 TCP_CONG_ADVANCED TCP_CONG_CUBIC TCP_CONG_DCTCP
TCP_CONG_BBR TCP_CONG_WESTWOOD TCP_CONG_HTCP
NET_SCHED NET_SCH_TBF NET_SCH_HTB NET_SCH_NETEM NET_SCH_RED NET_SCH_FQ NET_SCH_FQ_CODEL
NET_SCH_CODEL NET_SCH_SFQ NET_SCH_PRIO NET_SCH_INGRESS NET_CLS NET_CLS_U32 NET_CLS_BASIC
NET_CLS_MATCHALL NET_ACT_MIRRED NET_CLS_ACT
"""

# Parts of the kernel's default configuration that no VM has; half of the time it takes to build.
# Type information for BPF would take as long again, so the eBPF backend can't run on this kernel.
WITHOUT = """
DRM FB SOUND USB_SUPPORT WIRELESS WLAN RFKILL HID_SUPPORT ETHERNET MACINTOSH_DRIVERS ATA SCSI MD
NFS_FS NETWORK_FILESYSTEMS_CIFS NLS_UTF8 PCCARD AGP INPUT_JOYSTICK INPUT_TABLET INPUT_TOUCHSCREEN
NETFILTER SECURITY_SELINUX AUDIT QUOTA ISO9660_FS MSDOS_FS VFAT_FS EXT4_FS AUTOFS_FS HIBERNATION
SUSPEND ACPI_BATTERY THERMAL MICROCODE KEXEC KVM XEN IOMMU_SUPPORT CONNECTOR I2C MACSEC
DEBUG_INFO_BTF DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT MODULE_SIG WERROR LOCALVERSION_AUTO
"""

VALUES = {"DEBUG_KMEMLEAK_MEM_POOL_SIZE": "32000", "LOCALVERSION": '"-mltcp-debug"', "NR_CPUS": "8"}


def build_debug_kernel(name: str, *, configure_only: bool = False) -> Path:
    """Fetch the source, configure and build; into the cache as the kernel `name`, one of DEBUG.

    About 15 minutes on two cores and 4 GB of disk while it builds. A second call finds it done, or
    goes on where the first was cut off, unless the source or this file changed. Returns the
    kernel's folder, or with configure_only the source tree's.
    """
    for tool in TOOLS:
        if shutil.which(tool) is None:
            raise missing(tool)
    with lock(f"build-{name}"):
        apt = Apt(f"apt-{DEBUG[name]}", suite_sources(DEBUG[name]))
        old = cached(name)
        try:
            apt.update()
        except VmError as error:
            if old is None:
                raise VmError(f"The debug kernel can't be built: {error}", LACKING) from None
            say(f"{error} Using the cached debug kernel, {old.version}.")
            return old.folder
        source = max(filter(SOURCE.match, apt.depends(["linux-source"])))
        files = [*apt.files([source]), _fragment()]
        if old and json.loads((old.folder / STAMP).read_text())["files"] == files:
            say(f"the debug kernel is up to date: {old.version}")
            return old.folder
        folder = CACHE / name
        tree = folder / "linux"
        configured = tree / "mltcp.json"
        if not configured.exists() or json.loads(configured.read_text()) != files:
            with lock(name):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
            _unpack(apt, source, tree)
            _configure(tree)
            configured.write_text(json.dumps(files))
        if configure_only:
            return tree
        say("building the debug kernel")
        make = ["make", "-s", "-C", str(tree), f"-j{len(os.sched_getaffinity(0))}"]
        call([*make, "vmlinux", "modules"])
        version = call(["make", "-s", "-C", tree, "kernelrelease"]).strip()
        call([*make, f"INSTALL_MOD_PATH={folder}", "modules_install"])
        call(["strip", "-s", "-o", folder / "vmlinux", tree / "vmlinux"])
        (folder / "boot").mkdir(exist_ok=True)
        shutil.copy(tree / ".config", folder / "boot" / f"config-{version}")
        _remove_objects(tree)
        stamp = {"version": version, "files": files, "folder": str(folder)}
        (folder / STAMP).write_text(json.dumps(stamp))
        say(f"built {Kernel(name, version, folder).image}")
        return folder


def _fragment() -> str:
    """Our part of the configuration, in the form of a .config."""
    lines = [f"CONFIG_{name}=y" for name in (WORKING + WATCHING).split()]
    lines += [f"# CONFIG_{name} is not set" for name in WITHOUT.split()]
    lines += ["CONFIG_DEBUG_INFO_NONE=y"]
    lines += [f"CONFIG_{name}={value}" for name, value in VALUES.items()]
    return "\n".join(lines) + "\n"


def _unpack(apt: Apt, source: str, tree: Path) -> None:
    say(f"fetching {source}, 150 MB")
    scratch = tree.parent / "package"
    apt.download([source], scratch)
    (package,) = scratch.glob("*.deb")
    call(["dpkg", "-x", package, scratch])
    (archive,) = scratch.glob("usr/src/*.tar.xz")
    tree.mkdir()
    call(["tar", "-xf", archive, "-C", tree, "--strip-components=1"])
    shutil.rmtree(scratch)


def _configure(tree: Path) -> None:
    """The kernel's default configuration with our part; VmError where that was not taken."""
    call(["make", "-s", "-C", tree, "x86_64_defconfig"])
    fragment = tree / "mltcp.config"
    fragment.write_text(_fragment())
    call(["scripts/kconfig/merge_config.sh", "-m", ".config", fragment.name], cwd=tree)
    call(["make", "-s", "-C", tree, "olddefconfig"])
    config = (tree / ".config").read_text()
    lost = [
        name
        for name in (WORKING + WATCHING).split()
        if not re.search(rf"^CONFIG_{name}=y$", config, re.MULTILINE)
    ]
    if lost:
        raise VmError(f"The kernel's configuration didn't take {', '.join(lost)}.")


def _remove_objects(tree: Path) -> None:
    """Remove what the build leaves and building a module doesn't need: most of its size."""
    for path in tree.rglob("*.o"):
        if path.relative_to(tree).parts[0] not in ("scripts", "tools"):
            path.unlink()
    for name in ("vmlinux", "vmlinux.a", "drivers/built-in.a"):
        (tree / name).unlink(missing_ok=True)
