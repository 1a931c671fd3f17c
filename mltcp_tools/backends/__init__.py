"""Backends: the ways to run MLTCP in a kernel, behind one interface (`base.Backend`)."""

from __future__ import annotations

from mltcp_tools.backends.base import Backend
from mltcp_tools.errors import UsageError

__all__ = ["BACKENDS", "get_backend"]

BACKENDS = ("bpf",)
"""Names get_backend() accepts."""


def get_backend(name: str = "bpf") -> Backend:
    """The backend of that name; nothing is loaded by asking for it."""
    if name == "bpf":
        from mltcp_tools.backends.bpf import BpfBackend

        return BpfBackend()
    raise UsageError(f"There is no backend {name!r}; there is: {', '.join(BACKENDS)}.")
