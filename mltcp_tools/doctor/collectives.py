# SPDX-License-Identifier: BSD-2-Clause
"""The needs of summing up gradients in the network: at the aggregator, and at a worker."""

from __future__ import annotations

from mltcp_tools.base.installation import how_to_bring
from mltcp_tools.collectives import PACKAGES
from mltcp_tools.doctor import bpf
from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.privileges import capabilities
from mltcp_tools.doctor.report import Check, as_fix, install, needed

_XDP_BYTES = (5, 18)
"""Since then XDP programs read and write frames by a helper, however large these are."""


def checks(host: HostFacts) -> list[Check]:
    """The findings: what the aggregator needs, then what a worker needs."""
    return [
        _kernel(host),
        capabilities(host, {"CAP_BPF", "CAP_NET_ADMIN"}),
        bpf.clang(host),
        bpf.libbpf(host),
        _compiler(host),
        *_packages(host),
    ]


def _kernel(host: HostFacts) -> Check:
    there = host.kernel_version >= _XDP_BYTES
    return needed(
        "kernel",
        there,
        host.kernel,
        f"{host.kernel} is too old for the aggregator",
        "Boot Linux 5.18 or newer on the host of the aggregator; workers run on any kernel.",
    )


def _compiler(host: HostFacts) -> Check:
    found = host.which("gcc") or host.which("cc")
    return needed(
        "C compiler",
        found is not None,
        found or "",
        "not found; a worker is compiled on its own host",
        install("gcc python3-dev"),
    )


def _packages(host: HostFacts) -> list[Check]:
    """torch, and what plans the trees of `adaptive`."""
    return [_package(host, name) for name in PACKAGES]


def _package(host: HostFacts, name: str) -> Check:
    if not host.live:
        return Check(name, "unknown", "not tested")
    result = host.python_says(f"import importlib.metadata as m; print(m.version({name!r}))")
    if result is not None and result.code == 0:
        return Check(name, "ok", result.output.strip().splitlines()[-1])
    return Check(
        name,
        "warning",
        "not installed; workers need it, aggregators don't",
        as_fix(how_to_bring("collectives")),
    )
