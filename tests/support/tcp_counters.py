# SPDX-License-Identifier: BSD-2-Clause
"""The counters of the kernel's TCP in network namespaces (/proc/net/netstat; see nstat(8))."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from mltcp_tools.lab.testbed.namespaces import inside


def tcp_counters(namespaces: Iterable[str], wanted: Sequence[str]) -> Counter[str]:
    """The `wanted` counters since these namespaces were made, summed over them.

    What this kernel doesn't count is 0.
    """
    found: Counter[str] = Counter()
    for namespace in namespaces:
        with inside(namespace):
            lines = Path("/proc/thread-self/net/netstat").read_text().splitlines()
        names, values = (line.split()[1:] for line in lines if line.startswith("TcpExt:"))
        counted = dict(zip(names, map(int, values), strict=True))
        found.update({name: counted.get(name, 0) for name in wanted})
    return found
