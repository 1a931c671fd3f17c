# SPDX-License-Identifier: BSD-2-Clause
"""The counters of the kernel's TCP in network namespaces (/proc/net/netstat; see nstat(8))."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from mltcp_tools.lab.testbed.namespaces import inside

TCP_COUNTERS = {
    "TCPTimeouts": "timeouts",
    "TCPSackRecoveryFail": "in recovery",
    "TCPSackFailures": "SACKs, no recovery",
    "TCPLossFailures": "after another",
    "TCPSpuriousRTOs": "spurious",
    "TCPLossProbes": "probes",
    "TCPLossProbeRecovery": "that repaired",
    "TCPSackRecovery": "recoveries",
    "TCPLostRetransmit": "lost again",
}
"""Counters, and what they count in a few words. Of TCPTimeouts, the three after it are those of
which the kernel knows what went before (tcp_retransmit_timer()): a recovery that didn't end, SACKs
that were too few to begin one, and an earlier timeout. Of the others nothing had come back since
what was lost had been sent."""


def tcp_counters(namespaces: Iterable[str], wanted: Iterable[str] = TCP_COUNTERS) -> Counter[str]:
    """Those counters since these namespaces were made, summed over them.

    What this kernel doesn't count is 0.
    """
    wanted = tuple(wanted)
    found: Counter[str] = Counter()
    for namespace in namespaces:
        with inside(namespace):
            lines = Path("/proc/thread-self/net/netstat").read_text().splitlines()
        names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
        counted = dict(zip(names, map(int, values), strict=True))
        found.update({name: counted.get(name, 0) for name in wanted})
    return found
