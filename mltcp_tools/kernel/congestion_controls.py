# SPDX-License-Identifier: BSD-2-Clause
"""The congestion controls of MLTCP: each described once, by a row of CONGESTION_CONTROLS.

Adding one takes its C (kmod/mltcp_variants.c, bpf/NAME.bpf.c), its row here, and a test.
tests/unit/kernel/test_congestion_controls.py compares the rows with what the C registers.
"""

from __future__ import annotations

from dataclasses import dataclass

MECHANISMS = ("increase", "yield")
"""The parts of the algorithm: MLTCP_SCALE_INCREASE, MLTCP_YIELD."""


@dataclass(frozen=True)
class CongestionControl:
    """One congestion control of MLTCP.

    base: the kernel's congestion control that it is built on; a kernel that lacks it lacks the
    congestion control, and a socket gets it where nothing else is known. mechanisms: those of
    MECHANISMS that it uses where no job names any. observer: the congestion control to look at a
    socket of it with, which without mechanisms behaves as the base; "" where none leaves the socket
    as it is. backends: who has it. everywhere: every backend loads it without being asked.
    restricted: only who has CAP_NET_ADMIN may choose it, unless the administrator allows it to all.
    ecn: both ends settle it with ECN in the handshake.
    """

    name: str
    base: str
    mechanisms: tuple[str, ...] = ("increase",)
    observer: str = ""
    backends: tuple[str, ...] = ("bpf", "kmod")
    everywhere: bool = True
    restricted: bool = False
    ecn: bool = False


CONGESTION_CONTROLS = {
    each.name: each
    for each in (
        CongestionControl("mltcp", "reno", MECHANISMS, observer="mltcp_reno"),
        CongestionControl("mltcp_reno", "reno", observer="mltcp_reno"),
        CongestionControl("mltcp_cubic", "cubic", observer="mltcp_cubic"),
        CongestionControl(
            "mltcp_dctcp",
            "dctcp",
            MECHANISMS,
            observer="mltcp_dctcp",
            everywhere=False,
            restricted=True,
            ecn=True,
        ),
        # It needs kernel 6.0, and goes by feedback whether it has mechanisms or not.
        CongestionControl("mltcp_int", "reno", backends=("bpf",), everywhere=False),
    )
}
"""All there are, by name; the recommended one is the first."""

RECOMMENDED = next(iter(CONGESTION_CONTROLS))
NAMES = tuple(CONGESTION_CONTROLS)
STANDARD = tuple(each.name for each in CONGESTION_CONTROLS.values() if each.everywhere)
"""Those that every backend loads where none is named."""

OBSERVED = "observe"
"""In place of a congestion control's name: the one that `observer_of` says, with no mechanism: a
socket is seen and learned of, and behaves as before."""


def offered_by(backend: str) -> tuple[str, ...]:
    """Names of the congestion controls that the backend has."""
    return tuple(each.name for each in CONGESTION_CONTROLS.values() if backend in each.backends)


def is_mltcp(cc: str) -> bool:
    """Say whether a congestion control is one of MLTCP's, of this version or another."""
    return cc.startswith("mltcp")


def base_of(cc: str) -> str:
    """Return the base of a congestion control; any other congestion control is that itself."""
    return CONGESTION_CONTROLS[cc].base if cc in CONGESTION_CONTROLS else cc


def mechanisms_of(cc: str) -> tuple[str, ...]:
    """Return the mechanisms that a congestion control adds to its base by itself; nothing of any
    other."""
    return CONGESTION_CONTROLS[cc].mechanisms if cc in CONGESTION_CONTROLS else ()


def observer_of(cc: str) -> str:
    """Return the congestion control to look at a socket of `cc` with; "" where there is none."""
    if cc in CONGESTION_CONTROLS:
        return CONGESTION_CONTROLS[cc].observer
    own = (
        each.name
        for each in CONGESTION_CONTROLS.values()
        if (each.base, each.observer) == (cc, each.name)
    )
    return next(own, "")


def built_on() -> dict[str, tuple[str, ...]]:
    """Return the congestion controls of the kernel that some are built on, and which each."""
    bases = dict.fromkeys(each.base for each in CONGESTION_CONTROLS.values())
    return {
        base: tuple(each.name for each in CONGESTION_CONTROLS.values() if each.base == base)
        for base in bases
    }


def needs_ecn(cc: str) -> bool:
    """Say whether both ends settle `cc` with ECN in the handshake."""
    return cc == "dctcp" or (cc in CONGESTION_CONTROLS and CONGESTION_CONTROLS[cc].ecn)


def asked_as(cc: str) -> str:
    """Return the name by which a socket can be given what it runs by the name of `cc`.

    The kernel's dctcp goes by another one on a connection without ECN.
    """
    return "dctcp" if cc == "dctcp-reno" else cc
