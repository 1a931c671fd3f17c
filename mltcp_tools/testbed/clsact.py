"""BPF programs on what leaves an interface, in front of its qdisc."""

from __future__ import annotations

from pyroute2 import IPRoute

from mltcp_tools.testbed.qdiscs import needs

_EGRESS = 0xFFFFFFF3  # TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)
_ALL = 0x0003  # ETH_P_ALL
_HANDLE = 0xFFFF0000


def add_egress(interface: str, program_fd: int, name: str, priority: int = 1) -> None:
    """Have a program of the type `tc`, in direct-action mode, see what leaves `interface`.

    It goes with the interface. priority: programs with smaller ones come first.
    """
    with IPRoute() as ip, needs("the qdisc clsact and BPF filters (CONFIG_NET_CLS_BPF)"):
        index = ip.link_lookup(ifname=interface)[0]
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
