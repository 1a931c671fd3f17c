# SPDX-License-Identifier: BSD-2-Clause
"""BPF programs on what leaves an interface, in front of its qdisc."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from mltcp_tools.base.errors import HostError, UsageError

_EGRESS = 0xFFFFFFF3  # TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)
_ALL = 0x0003  # ETH_P_ALL
_HANDLE = 0xFFFF0000


def add_egress(interface: str, program_fd: int, name: str, priority: int = 1) -> None:
    """Have a program of the type `tc`, in direct-action mode, see what leaves `interface`.

    It goes with the interface, or by `remove_egress`. priority: programs with smaller ones come
    first. Raises UsageError where there is no such interface.
    """
    with _filters(interface) as (ip, index):
        if not any(each["handle"] == _HANDLE for each in ip.get_qdiscs(index)):
            ip.tc("add", "clsact", index)
        ip.tc(
            "add-filter",
            "bpf",
            index,
            parent=_EGRESS,
            fd=program_fd,
            name=name,
            classid=1,
            direct_action=True,
            protocol=_ALL,
            prio=priority,
        )


def remove_egress(interface: str, priority: int) -> None:
    """Take away the programs of this priority, if there are any."""
    with _filters(interface) as (ip, index):
        try:
            ip.tc("del-filter", "bpf", index, parent=_EGRESS, protocol=_ALL, prio=priority)
        except NetlinkError as error:
            if error.code not in (errno.ENOENT, errno.EINVAL):
                raise


def egress_programs(interface: str) -> list[int]:
    """Ids of the programs that see what leaves `interface`, by tc: pyroute2 doesn't decode them."""
    command = ["tc", "-j", "filter", "show", "dev", interface, "egress"]
    try:
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise HostError(f"`{' '.join(command)}` failed ({error}); install iproute2.") from None
    programs = [each.get("options", {}).get("prog", {}) for each in json.loads(said or "[]")]
    return [program["id"] for program in programs if "id" in program]


@contextmanager
def _filters(interface: str) -> Iterator[tuple[IPRoute, int]]:
    """Netlink and the interface's index; errors are sentences."""
    with IPRoute() as ip:
        found = ip.link_lookup(ifname=interface)
        if not found:
            raise UsageError(f"There is no interface {interface}; `ip link` shows those there are.")
        try:
            yield ip, found[0]
        except NetlinkError as error:
            if error.code in (errno.ENOENT, errno.EOPNOTSUPP):
                raise HostError(
                    "This kernel lacks the qdisc clsact and BPF filters (CONFIG_NET_CLS_BPF)."
                ) from None
            reason = os.strerror(error.code)
            raise HostError(f"BPF filters of {interface} can't be changed: {reason}.") from None
