# SPDX-License-Identifier: BSD-2-Clause
"""Checks of this process's capabilities against those that a purpose needs."""

from __future__ import annotations

from mltcp_tools.doctor.host import HostFacts
from mltcp_tools.doctor.report import Check, needed


def capabilities(host: HostFacts, wanted: set[str]) -> Check:
    """Compare what is effective with `wanted`, a subset of `host.CAPABILITIES`."""
    has = set(host.capabilities)
    if "CAP_SYS_ADMIN" in has:  # the older capability includes these newer ones
        has |= {"CAP_BPF", "CAP_PERFMON"}
    lacking = ", ".join(sorted(wanted - has))
    if host.in_user_namespace:
        return Check(
            "capabilities",
            "missing",
            "this is a user namespace, whose capabilities are not valid for the host",
            "Run as root on the host, or in a privileged container that is not rootless.",
        )
    return needed(
        "capabilities",
        not lacking,
        ", ".join(sorted(wanted)),
        f"this process lacks {lacking}",
        "Run as root, for example with sudo.",
    )
