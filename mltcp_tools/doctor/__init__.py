# SPDX-License-Identifier: BSD-2-Clause
"""Checks of this host: what it has and lacks for each use of MLTCP, and the fix for each.

`diagnose` looks at everything and changes nothing that stays: the one thing it tries out, network
namespaces and queueing disciplines, it tries in a namespace that dies with the probe.
"""

from __future__ import annotations

from mltcp_tools.doctor import attach, bpf, kmod, testbed
from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.report import Check, Diagnosis

__all__ = ["Check", "Diagnosis", "HostFacts", "diagnose"]


def diagnose(host: HostFacts | None = None) -> Diagnosis:
    """Look at everything on `host` (default: this one). Needs no privilege; sees more as root."""
    host = host or HostFacts()
    purposes = {"bpf": bpf, "testbed": testbed, "kmod": kmod, "attach": attach}
    return Diagnosis(
        host.kernel, {purpose: module.checks(host) for purpose, module in purposes.items()}
    )
