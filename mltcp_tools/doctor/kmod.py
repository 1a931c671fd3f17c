"""The needs of loading the kernel module, and of building it where that is still to be done."""

from __future__ import annotations

from mltcp_tools.doctor.host import Host
from mltcp_tools.doctor.report import Check, install
from mltcp_tools.kernel.backends import module
from mltcp_tools.kernel.variants import built_on


def checks(host: Host) -> list[Check]:
    """The findings, from loading to signing."""
    found = _module(host)
    there = found.state == "ok"
    return [
        _modules(host),
        found,
        _headers(host, there),
        _compiler(host, there),
        *bases(host),
        _signing(host),
    ]


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


def _module(host: Host) -> Check:
    """In the kernel, installed for it, or built for it among the sources."""
    name = "tcp_mltcp"
    build = "Build it with `make -C kmod module`, and install it with `make -C kmod install`."
    if host.exists(f"/sys/module/{module.NAME}"):
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


def _building(name: str, tools: bool, there: bool, found: str, lacking: str, fix: str) -> Check:
    """A finding that stands in the way only while there is no module."""
    if tools:
        return Check(name, "ok", found)
    if there:
        return Check(name, "warning", f"{lacking}; needed to build the module anew", fix)
    return Check(name, "missing", lacking, fix)


def _headers(host: Host, there: bool) -> Check:
    folder = f"/lib/modules/{host.kernel}/build"
    return _building(
        "kernel headers",
        host.exists(f"{folder}/Makefile"),
        there,
        folder,
        f"no {folder}",
        install(f"linux-headers-{host.kernel}"),
    )


def _compiler(host: Host, there: bool) -> Check:
    name = "make and gcc"
    if not host.live:
        return Check(name, "unknown", "not looked for")
    lacking = [tool for tool in ("make", "gcc") if host.which(tool) is None]
    return _building(
        name,
        not lacking,
        there,
        "found",
        f"no {' and no '.join(lacking)}",
        install(" ".join(lacking)),
    )


def bases(host: Host) -> list[Check]:
    """The kernel's own algorithms that others build on; a backend does without those not there."""
    available = host.words("/proc/sys/net/ipv4/tcp_available_congestion_control")
    if not available:
        return []
    found = []
    for base, names in built_on().items():
        built = " and ".join(names)
        if base in available or host.unloaded_module(f"tcp_{base}"):
            found.append(Check(f"base {base}", "ok", f"there, for {built}"))
        else:
            option = f"CONFIG_TCP_CONG_{base.upper()}"
            found.append(
                Check(
                    f"base {base}",
                    "warning",
                    f"the kernel lacks it, so there will be no {built}",
                    f"Boot a kernel built with {option}, or do without {built}.",
                )
            )
    return found


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
