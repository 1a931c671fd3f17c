# SPDX-License-Identifier: BSD-2-Clause
"""The needs of loading the kernel module, and of building it where that is still to be done."""

from __future__ import annotations

import re

from mltcp_tools.base.installation import how_to_bring_module
from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.report import Check, as_fix, install, needed
from mltcp_tools.kernel.backends import module
from mltcp_tools.kernel.congestion_controls import built_on


def checks(host: HostFacts) -> list[Check]:
    """The findings, from loading to signing; of building only where that would help."""
    found = _module(host)
    if refused := _refusal(host):
        return [Check(_LOADING, "missing", *refused), found, *bases(host)]
    building = []
    if found.state != "ok" and _can_be_signed(host):
        building = [_headers(host), _compiler(host)]
    return [_loading(host), found, *building, *bases(host), _signing(host)]


_LOADING = "module loading"


def _refusal(host: HostFacts) -> tuple[str, str] | None:
    """Say why no module whatever can be loaded from here, and what to do; None where one may be."""
    if _is_loaded(host):
        return None
    if not host.exists("/proc/modules"):
        fix = "Use the BPF backend, or boot a kernel with CONFIG_MODULES=y."
        return "this kernel can't load modules", fix
    if host.read("/proc/sys/kernel/modules_disabled") == "1":
        fix = "Use the BPF backend, or reboot without setting it."
        return "kernel.modules_disabled = 1", fix
    if host.in_user_namespace or (_is_root(host) and "CAP_SYS_MODULE" not in host.capabilities):
        return "this container may not load modules", "Load the module on the host itself."
    return None


def _is_root(host: HostFacts) -> bool:
    return re.search(r"^Uid:\s+\d+\s+0\s", host.read("/proc/self/status") or "", re.M) is not None


def _is_loaded(host: HostFacts) -> bool:
    return host.exists(f"/sys/module/{module.NAME}")


def _loading(host: HostFacts) -> Check:
    name = _LOADING
    if _is_loaded(host):
        return Check(name, "ok", f"{module.NAME} is loaded")
    if "CAP_SYS_MODULE" not in host.capabilities:
        return Check(name, "missing", "this process lacks CAP_SYS_MODULE", "Run it as root.")
    if host.live and host.which("modprobe") is None:
        return Check(name, "missing", "no modprobe", install("kmod"))
    return Check(name, "ok", "possible")


def _module(host: HostFacts) -> Check:
    """In the kernel, installed for it, or built for it among the sources."""
    name = "tcp_mltcp"
    build = _advice(host)
    if _is_loaded(host):
        return Check(name, "ok", "loaded")
    if host.unloaded_module(module.NAME):
        return Check(name, "ok", f"installed for {host.kernel}")
    path = module.built() if host.live else None
    if path is None:
        return Check(name, "missing", f"neither installed for {host.kernel} nor built", build)
    told = host.run(["modinfo", "-F", "vermagic", str(path)])
    made_for = told.output.partition(" ")[0] if told and told.code == 0 else "an unknown kernel"
    if made_for != host.kernel:
        return Check(name, "missing", f"{path} is built for {made_for}", build)
    return Check(name, "ok", f"{path}, not installed")


def _advice(host: HostFacts) -> str:
    """Return what to do for a module that fits, as far as this host can do it."""
    if _refusal(host) or not _can_be_signed(host):
        return "Use the BPF backend: mltcp load --backend bpf"
    first = "" if host.exists(_build_folder(host)) else "with the kernel's headers there, "
    return as_fix(f"{first}{how_to_bring_module(signed=bool(_demands_signature(host)))}")


def _build_folder(host: HostFacts) -> str:
    return f"/lib/modules/{host.kernel}/build"


def _headers(host: HostFacts) -> Check:
    folder = _build_folder(host)
    package = f"linux-headers-{host.kernel}"
    fix = (
        f"{install(package)}, on the host itself. If there is no such package, take the headers"
        " from the builder of this kernel, or use the BPF backend."
    )
    there = host.exists(f"{folder}/Makefile")
    return needed("kernel headers", there, folder, f"no {folder}", fix)


def _compiler(host: HostFacts) -> Check:
    name = "make and gcc"
    if not host.live:
        return Check(name, "unknown", "not tested")
    lacking = [tool for tool in ("make", "gcc") if host.which(tool) is None]
    fix = install(" ".join(lacking))
    return needed(name, not lacking, "found", f"no {' and no '.join(lacking)}", fix)


def bases(host: HostFacts) -> list[Check]:
    """The kernel's own algorithms that others build on; a backend does without those not there."""
    available = host.words("/proc/sys/net/ipv4/tcp_available_congestion_control")
    if not available:
        return []
    found = []
    for base, names in built_on().items():
        built = " and ".join(names)
        if base in available or host.unloaded_module(f"tcp_{base}"):
            found.append(Check(f"base {base}", "ok", f"available, for {built}"))
        else:
            option = f"CONFIG_TCP_CONG_{base.upper()}"
            found.append(
                Check(
                    f"base {base}",
                    "warning",
                    f"not in this kernel, so there will be no {built}",
                    f"Boot a kernel built with {option}, or do without {built}.",
                )
            )
    return found


def _demands_signature(host: HostFacts) -> list[str]:
    """Return the reasons why the kernel takes only signed modules; none where it takes any."""
    reasons = []
    if host.secure_boot:
        reasons.append("secure boot is on")
    if host.lockdown not in (None, "none"):
        reasons.append(f"lockdown is {host.lockdown}")
    enforced = host.read("/sys/module/module/parameters/sig_enforce") == "Y"
    if enforced or host.config.get("MODULE_SIG_FORCE") == "y":
        reasons.append("the kernel demands signatures")
    return reasons


def _can_be_signed(host: HostFacts) -> bool:
    """Return whether a module built here can come to be accepted: keys are enrolled in EFI's."""
    return not _demands_signature(host) or host.exists("/sys/firmware/efi")


def _signing(host: HostFacts) -> Check:
    reasons = _demands_signature(host)
    if not reasons:
        return Check("signing", "ok", "not needed on this host")
    return Check(
        "signing",
        "warning",
        f"modules must be signed with a key that the kernel knows: {', '.join(reasons)}",
        "Sign the module with a key enrolled by `mokutil --import`, or use the BPF backend."
        if _can_be_signed(host)
        else "Use the BPF backend: keys are enrolled through EFI, which this host does not have.",
    )
