"""Network namespaces: being inside one, and reading and setting what belongs to it.

Everything that is set is read back.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, config, netns
from pyroute2.ethtool import Ethtool

from mltcp_tools.errors import HostError, MltcpError, UsageError
from mltcp_tools.kernel.host.facts import read_sysctl, sysctl_path
from mltcp_tools.kernel.host.namespaces import entered

NAMESPACES = Path("/run/netns")
PREFIX = "mltcp-"
# Features by the kernel's names; off, so that packets on the wire are what the queue sees.
OFFLOADS = (
    "tx-generic-segmentation",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp-mangleid-segmentation",
    "tx-tcp6-segmentation",
    "tx-gso-list",
    "rx-gro",
    "rx-gro-list",
)


# pyroute2 makes namespaces in a child that it allows 2 s: too few on a host that is overloaded.
config.default_communicate_timeout = 60


@contextlib.contextmanager
def inside(namespace: str | None) -> Iterator[None]:
    """Run the calling thread's next system calls in `namespace`; processes it starts stay there.

    None: where the thread is already.
    """
    if namespace is None:
        yield
        return
    with entered(NAMESPACES / namespace):
        yield


def remove_namespace(namespace: str) -> None:
    """Remove the name; no error where it is gone already."""
    with contextlib.suppress(FileNotFoundError):
        netns.remove(namespace)


def write_sysctl(key: str, value: str) -> None:
    """Set a sysctl in the calling thread's namespace and read it back."""
    path = sysctl_path(key)
    if not path.exists() and key.startswith("net.ipv6."):
        return  # a kernel without IPv6 has nothing to switch off
    try:
        path.write_text(value)
        actual = read_sysctl(key)
    except OSError as error:
        reason = "it doesn't exist there" if error.errno == errno.ENOENT else error.strerror
        raise UsageError(
            f"The sysctl {key} can't be set to {value!r} in a network namespace ({reason}); take it"
            " out of the experiment's `sysctls`."
        ) from None
    if actual != " ".join(value.split()):
        raise MltcpError(f"The sysctl {key} was set to {value!r} but reads {actual!r}.")


def enabled_offloads(interface: str) -> list[str]:
    """Return those of OFFLOADS that are on for `interface`."""
    features = _ethtool_features(interface)
    return [name for name in OFFLOADS if name in features and features[name].enable]


def switch_off_offloads(interface: str) -> None:
    """Switch OFFLOADS off and read that back."""
    with contextlib.closing(Ethtool()) as ethtool:
        state = ethtool.get_features(interface)
        for name in OFFLOADS:
            if name in state.features:
                state.features[name].enable = False
        ethtool.set_features(interface, state)
    if left := enabled_offloads(interface):
        raise HostError(f"The kernel keeps {', '.join(left)} switched on for a veth link.")


def _ethtool_features(interface: str) -> Any:
    with contextlib.closing(Ethtool()) as ethtool:
        return ethtool.get_features(interface).features


def interfaces() -> list[str]:
    with IPRoute() as ip:
        names = [link.get_attr("IFLA_IFNAME") for link in ip.get_links()]
    return [name for name in names if name != "lo"]
