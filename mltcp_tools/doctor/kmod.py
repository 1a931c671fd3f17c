"""What building and loading the kernel module needs."""

from __future__ import annotations

from mltcp_tools.doctor.host import Host
from mltcp_tools.doctor.report import Check, install, needed


def checks(host: Host) -> list[Check]:
    """The findings, from loading to signing."""
    return [_modules(host), _headers(host), _compiler(host), _signing(host)]


def _modules(host: Host) -> Check:
    name = "module loading"
    if not host.exists("/proc/modules"):
        return Check(
            name,
            "missing",
            "this kernel can't load modules",
            "Use the BPF backend, or boot a kernel with CONFIG_MODULES=y.",
        )
    if host.read("/proc/sys/kernel/modules_disabled") == "1":
        return Check(name, "missing", "kernel.modules_disabled = 1", "Reboot without setting it.")
    if "CAP_SYS_MODULE" not in host.capabilities:
        return Check(name, "missing", "this process lacks CAP_SYS_MODULE", "Run it as root.")
    if host.live and host.which("modprobe") is None:
        return Check(name, "missing", "no modprobe", install("kmod"))
    return Check(name, "ok", "possible")


def _headers(host: Host) -> Check:
    folder = f"/lib/modules/{host.kernel}/build"
    return needed(
        "kernel headers",
        host.exists(f"{folder}/Makefile"),
        folder,
        f"no {folder}",
        install(f"linux-headers-{host.kernel}"),
    )


def _compiler(host: Host) -> Check:
    lacking = [tool for tool in ("make", "gcc") if host.which(tool) is None]
    if not host.live:
        return Check("make and gcc", "unknown", "not looked for")
    return needed(
        "make and gcc",
        not lacking,
        "found",
        f"no {' and no '.join(lacking)}",
        install(" ".join(lacking)),
    )


def _signing(host: Host) -> Check:
    reasons = []
    if host.secure_boot:
        reasons.append("secure boot is on")
    if host.lockdown not in (None, "none"):
        reasons.append(f"lockdown is {host.lockdown}")
    enforced = host.read("/sys/module/module/parameters/sig_enforce") == "Y"
    if enforced or host.config.get("MODULE_SIG_FORCE") == "y":
        reasons.append("the kernel demands signatures")
    if not reasons:
        return Check("signing", "ok", "modules need no signature here")
    return Check(
        "signing",
        "warning",
        f"modules must be signed with an enrolled key: {', '.join(reasons)}",
        "Sign the module with a key enrolled by `mokutil --import`, or use the BPF backend.",
    )
