# SPDX-License-Identifier: BSD-2-Clause
"""The kernel module on this host: where it is, putting it into the kernel, taking it out."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mltcp_tools.base.errors import BusyError, HostError, UnknownError
from mltcp_tools.base.installation import how_to_bring_module
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.native.csources import source_root

NAME = "tcp_mltcp"

_SYS = Path("/sys/module") / NAME
_PARAMETERS = _SYS / "parameters"
_ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # where some users' PATH doesn't look
_OTHERWISE = "or use the eBPF variant: mltcp load --backend bpf"
_BUILD = "make -C kmod module"


def is_loaded() -> bool:
    """Return whether the kernel has it, ready to use. UnknownError where that can't be read."""
    try:
        return (_SYS / "initstate").read_text() == "live\n"
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENODEV)  # ENODEV: while it is being taken out
        if gone and _SYS.parent.is_dir():
            return False
        raise UnknownError(
            f"It isn't known whether the module {NAME} is loaded: {_SYS}: {error.strerror}; mount"
            " sysfs at /sys."
        ) from error


def generation() -> int:
    """A number that differs between one loading and the next; FileNotFoundError when not loaded."""
    return _SYS.stat().st_ino


def references() -> int:
    """Return the number of its holders in the kernel."""
    return int((_SYS / "refcnt").read_text())


def parameters() -> dict[str, int]:
    """Values of its parameters: thousandths, nanoseconds and bytes, see `modinfo tcp_mltcp`."""
    return {path.name: int(path.read_text()) for path in sorted(_PARAMETERS.iterdir())}


def set_parameter(name: str, value: int) -> None:
    """Change a parameter of the module in the kernel."""
    (_PARAMETERS / name).write_text(f"{value}\n")


def build_loaded() -> str:
    """Version and source version (a digest of the sources) of the module in the kernel."""
    return f"{(_SYS / 'version').read_text().strip()}+{(_SYS / 'srcversion').read_text().strip()}"


def build_here() -> str:
    """The same of the module that `insert` would load; empty without one, or without modinfo."""
    try:
        file = NAME if installed() else str(built() or "")
        if not file:
            return ""
        version = _run("modinfo", "-F", "version", file).strip()
        return f"{version}+{_run('modinfo', '-F', 'srcversion', file).strip()}"
    except HostError:
        return ""


def installed() -> bool:
    """Return whether modprobe finds it for this kernel."""
    index = Path("/lib/modules") / os.uname().release / "modules.dep"
    try:
        return re.search(rf"(^|/){NAME}\.ko\b", index.read_text(), re.MULTILINE) is not None
    except FileNotFoundError:
        return False


def built() -> Path | None:
    """The module as `make` leaves it among the sources, for whichever kernel; None without one."""
    path = source_root() / "kmod" / f"{NAME}.ko"
    return path if path.is_file() else None


def require_loading() -> None:
    """Raise HostError, with the way out, unless modules can be loaded from here."""
    if not Path("/proc/modules").exists():
        raise HostError(f"This kernel can't load modules; boot one that can, {_OTHERWISE}")
    disabled = Path("/proc/sys/kernel/modules_disabled")
    if disabled.exists() and disabled.read_text().strip() == "1":
        raise HostError(
            "Loading modules was switched off until the next boot (kernel.modules_disabled = 1); "
            f"reboot without that, {_OTHERWISE}"
        )
    _require_capability()


def _require_capability() -> None:
    if "CAP_SYS_MODULE" not in facts.effective_capabilities():
        raise HostError(
            "This process lacks CAP_SYS_MODULE, which loading and unloading a kernel module takes; "
            "run it as root (sudo)."
        )


def built_for_this_kernel() -> Path:
    """The module among the sources; HostError, with what to do, unless it fits this kernel."""
    kernel = os.uname().release
    path = built()
    if path is None:
        raise HostError(
            f"The module {NAME} is not installed for kernel {kernel};"
            f" {how_to_bring_module(signed=facts.demands_signed_modules())}; {_OTHERWISE}"
        )
    made_for = _run("modinfo", "-F", "vermagic", str(path)).partition(" ")[0]
    if made_for != kernel:
        raise HostError(
            f"{path} is built for kernel {made_for}, but {kernel} runs; build it again: "
            f"make -C kmod clean && {_BUILD}"
        )
    return path


def insert(arguments: Sequence[str]) -> None:
    """Load the installed module, else the one built among the sources, with these parameters."""
    if installed():
        _run("modprobe", NAME, *arguments)
        return
    path = built_for_this_kernel()
    depends = _run("modinfo", "-F", "depends", str(path))
    for name in filter(None, depends.strip().split(",")):
        _run("modprobe", name)
    _run("insmod", str(path), *arguments)


def remove() -> None:
    """Take it out of the kernel; BusyError while something holds it."""
    _require_capability()
    _run("rmmod", NAME)


def _run(tool: str, *arguments: str) -> str:
    program = shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:{_ADMIN_PATH}")
    if program is None:
        raise HostError(f"{tool} is not installed: apt install kmod")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode:
        raise explain(tool, done.stderr.strip())
    return done.stdout


def explain(tool: str, said: str) -> HostError | BusyError:
    """One sentence for the failure of one of kmod's tools, from what it said in English."""
    if "in use" in said or "Resource temporarily unavailable" in said:
        return BusyError(f"The module {NAME} is in use.")
    if "File exists" in said:
        return BusyError(
            f"The module {NAME} could not be loaded: it, or every name it registers, is there;"
            " see `mltcp status`."
        )
    rejected = "Key was rejected" in said or "Required key not available" in said
    if rejected or ("not permitted" in said and facts.lockdown() != "none"):
        return HostError(
            f"The kernel takes only modules signed with a key it knows (secure boot or lockdown), "
            f"and not this {NAME}; sign it with a key enrolled by `mokutil --import`, {_OTHERWISE}"
        )
    if "not permitted" in said:
        return HostError(
            f"{tool} was not permitted: the kernel is locked down, or this is a container or a "
            "user namespace; run it as root on the host itself, and see `mltcp doctor`."
        )
    if "Exec format" in said or "Invalid module format" in said:
        return HostError(f"The module {NAME} doesn't fit this kernel; build it again: {_BUILD}")
    return HostError(
        f"{tool} failed: {' '.join(said.split())} (the kernel's log, `dmesg`, may say more)."
    )
