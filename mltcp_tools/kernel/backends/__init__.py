# SPDX-License-Identifier: BSD-2-Clause
"""Backends: the ways to run MLTCP in a kernel, behind one interface (`base.Backend`). As root:

    backend = get_backend()
    backend.set_job(Job(1, "resnet", JobParams(burst_bytes=2_500_000, gap_s=0.17)))
    backend.tag(sock.fileno(), 1)
    with backend.iterations() as stream:
        for event in stream.poll(timeout_s=10):
            print(event.iteration, event.bytes, event.last_ack_s - event.first_ack_s)

A job is numbered by whoever sets it; `tag` takes descriptors of this process.
"""

from __future__ import annotations

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends.base import Backend

__all__ = ["AUTO", "BACKENDS", "get_backend"]

BACKENDS = ("bpf", "kmod")
"""The backends there are: eBPF programs, and the kernel module."""

AUTO = "auto"
"""The name of whichever backend fits this host."""


def get_backend(name: str = AUTO) -> Backend:
    """The backend of that name; nothing is loaded by asking for it.

    `auto` is the one that is in the kernel. Should both be, which takes loading the module behind
    this tool's back, it is the one that has the name `mltcp`: the first to come. With neither
    there, it is the kernel module where that is installed for this kernel, else eBPF.
    """
    if name == AUTO:
        return _auto()
    if name == "bpf":
        from mltcp_tools.kernel.backends.bpf import BpfBackend

        return BpfBackend()
    if name == "kmod":
        from mltcp_tools.kernel.backends.kmod import KmodBackend

        return KmodBackend()
    raise UsageError(f"There is no backend {name!r}; there is: {', '.join((AUTO, *BACKENDS))}.")


def _auto() -> Backend:
    from mltcp_tools.kernel.backends import module

    bpf, kmod = get_backend("bpf"), get_backend("kmod")
    if kmod.is_present() and bpf.is_present():
        return kmod if "mltcp" in kmod.status().loaded else bpf
    if kmod.is_present() or (module.installed() and not bpf.is_present()):
        return kmod
    return bpf
