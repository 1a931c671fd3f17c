# SPDX-License-Identifier: BSD-2-Clause
"""Network namespaces: being inside one, and reading and setting what belongs to it.

Everything that is set is read back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, config, netns
from pyroute2.ethtool import Ethtool

from mltcp_tools.base.errors import HostError, MltcpError, UsageError
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


# /sys has the interfaces of the namespace from which it was mounted.
_STEER = """
mount -t sysfs sysfs /sys || exit
for file in /sys/class/net/*/queues/rx-*/rps_cpus; do
	[ ! -e "$file" ] || { echo "$1" >"$file" && cat "$file"; } || exit
done
"""

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


@contextlib.contextmanager
def sysctls_set(settings: Mapping[str, str]) -> Iterator[None]:
    """Have these sysctls while inside, and what was there before afterwards."""
    with contextlib.ExitStack() as stack:
        for key, value in settings.items():
            with contextlib.suppress(OSError):
                stack.callback(write_sysctl, key, read_sysctl(key))
            write_sysctl(key, value)
        yield


def keep_order() -> None:
    """Let no packet overtake another of its flow on the interfaces of the thread's namespace.

    veth leaves a packet to the CPU that sends it. A flow's packets, some sent by its
    application and some where an ACK comes in, then overtake each other, which no wire lets them:
    TCP takes it for loss. Receive packet steering leaves all of a flow's to one CPU of those
    that this process may use, as a network card does.
    """
    CPUs = sum(1 << CPU for CPU in os.sched_getaffinity(0))
    words = (CPUs >> shift for shift in range(0, CPUs.bit_length(), 32))
    mask = ",".join(reversed([f"{word & 0xFFFFFFFF:x}" for word in words]))
    command = ["unshare", "--mount", "sh", "-c", _STEER, "sh", mask]
    done = subprocess.run(command, capture_output=True, text=True)
    # The kernel may leave out CPUs that are kept free, but not all of them.
    if done.returncode or not all(line.strip("0,") for line in done.stdout.split()):
        reason = done.stderr.strip() or "the kernel takes none of this process's CPUs"
        raise HostError(
            f"Packets in a network namespace can't be kept in order ({reason}); a container must"
            " allow unshare and mount."
        )


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
