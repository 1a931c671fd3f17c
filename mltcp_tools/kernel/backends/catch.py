"""The interface by which new connections of cgroups are a job's before their first data.

With eBPF they are switched and tagged (bpf_catch); the module tags those that run one of its
congestion controls by themselves (kmod_catch).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mltcp_tools.errors import HostError
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.closing import Closing

PORTS = 4
"""MLTCP_PORTS of bpf/attach.bpf.h, MLTCP_RULE_PORTS of kmod/rules.h."""


@dataclass(frozen=True)
class Catch:
    """A rule for new connections. job: id of the one that they get.

    name: the congestion control that they get; empty: the one that `choices` has for what they run,
    and none where it has none. lowest_port, ports: connections with a port below, or with one of
    these, are left alone; at most PORTS of them.
    """

    job: int
    name: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    lowest_port: int = 0
    ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.ports) > PORTS:
            raise ValueError(f"at most {PORTS} ports")

    @property
    def padded_ports(self) -> tuple[int, ...]:
        """All PORTS of them; 0: none."""
        return (*self.ports, *[0] * (PORTS - len(self.ports)))


class Catcher(Closing):
    """Catches new connections of cgroups for as long as this process lives, and no longer."""

    switches: bool
    """True: connections are given the congestion control, too, so that none need be looked at."""

    @abstractmethod
    def set(self, wanted: Mapping[Path, Catch]) -> None:
        """Catch for these cgroups, by their folders, and for no others. HostError names the first
        one for which the kernel refuses it; one that is gone meanwhile is passed over."""

    @property
    @abstractmethod
    def cgroups(self) -> list[Path]:
        """For which new connections are caught."""


def folder_of(path: str) -> Path | None:
    """The folder of a cgroup by its path below the mount; None where it isn't one of version 2, or
    is the root, which is nobody's job."""
    if path.strip("/") == "":
        return None
    try:
        folder = cgroups.root() / path.strip("/")
    except HostError:
        return None
    return folder if (folder / "cgroup.procs").exists() else None
