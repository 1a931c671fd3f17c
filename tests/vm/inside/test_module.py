# SPDX-License-Identifier: BSD-2-Clause
"""The kernel module by itself: loading, choosing its congestion controls, unloading, leaks."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.connections import bottleneck
from vm.loading import FILE, MODULE, SLAB, allow, choose, chosen, insert, pair, registered, remove

from mltcp_tools.kernel.congestion_controls import offered_by
from mltcp_tools.kernel.host import facts
from mltcp_tools.lab.testbed.namespaces import inside, write_sysctl
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS

MODULE_NAMES = offered_by("kmod")

DEFAULT = "net.ipv4.tcp_congestion_control"


@pytest.fixture
def absent() -> Iterator[None]:
    """The module isn't loaded before, and isn't after."""
    assert not MODULE.exists()
    yield
    if MODULE.exists():
        remove()
    assert not registered()


@pytest.fixture
def module(absent: None) -> None:
    insert()


def test_insmod_and_rmmod(absent: None) -> None:
    subprocess.run(["insmod", FILE, "slope=2000"], check=True)
    assert registered() == set(MODULE_NAMES)
    assert (MODULE / "parameters" / "slope").read_text().strip() == "2000"
    # Six cache lines; that an ACK needs two of them is looked into when the module is built.
    assert int((SLAB / "object_size").read_text()) <= 384
    subprocess.run(["rmmod", "tcp_mltcp"], check=True)
    assert not MODULE.exists()
    assert not registered()
    refused = subprocess.run(["insmod", FILE, "slope=-1"], capture_output=True)
    assert refused.returncode != 0
    assert not MODULE.exists()


@pytest.mark.parametrize("name", MODULE_NAMES)
def test_a_name_loads_the_module(absent: None, name: str) -> None:
    with socket.socket() as sock:
        choose(sock, name)
        assert chosen(sock) == name
    assert registered() == set(MODULE_NAMES)
    remove()
    default = facts.default_congestion_control()
    write_sysctl(DEFAULT, name)
    try:
        assert MODULE.exists()
    finally:
        write_sysctl(DEFAULT, default)


@pytest.mark.parametrize("name", MODULE_NAMES)
def test_chosen_by_namespace_and_by_route(module: None, name: str) -> None:
    # The kernel loses count of a restricted one that a namespace was refused as its default.
    allow(name)
    with bottleneck() as network:
        with inside(network.senders[0]):
            write_sysctl(DEFAULT, name)
            with socket.socket() as sock:
                assert chosen(sock) == name
            write_sysctl(DEFAULT, "reno")
            (route,) = subprocess.run(
                ["ip", "route", "show", "default"], check=True, capture_output=True, text=True
            ).stdout.splitlines()
            words = [RECEIVER_ADDRESS, *route.split()[1:], "congctl", name]
            subprocess.run(["ip", "route", "add", *words], check=True)
        with (
            inside(network.receiver),
            socket.create_server((RECEIVER_ADDRESS, 0)) as server,
        ):
            with inside(network.senders[0]):
                sock = socket.socket()
            with sock:
                assert chosen(sock) == "reno"
                sock.connect(server.getsockname())
                assert chosen(sock) == ("mltcp" if name == "mltcp_dctcp" else name)  # no ECN here


def test_dctcp_stays_restricted(module: None) -> None:
    """As the kernel's own: a user may have it where the administrator allows it."""

    def as_nobody(name: str) -> int:
        code = f"import socket; socket.socket().setsockopt(6, 13, {name.encode()!r})"
        user = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all"]
        done = subprocess.run([*user, sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0 or "PermissionError" in done.stderr
        return done.returncode

    assert [as_nobody(name) for name in ("mltcp", "mltcp_dctcp")] == [0, 1]
    allow("mltcp_dctcp")
    assert as_nobody("mltcp_dctcp") == 0


def test_rmmod_is_refused_while_in_use(module: None) -> None:
    def refused() -> bool:
        with pytest.raises(OSError, match="delete_module") as raised:
            remove(seconds=0)
        return raised.value.errno == errno.EAGAIN

    with pair("mltcp_cubic") as (client, peer):
        assert refused()
        client.sendall(b"still works")
        assert peer.recv(100) == b"still works"
        choose(client, "reno")
        remove()
    insert()
    with bottleneck() as network:
        with inside(network.senders[0]):
            write_sysctl(DEFAULT, "mltcp")
        assert refused()
    remove()  # the namespace is gone, and its default with it


def test_a_hundred_rounds_of_loading_leave_nothing(absent: None) -> None:
    def kernel_memory() -> int:
        """Memory of the kernel that it can't give back, in kB."""
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return sum(int(lines[name].split()[0]) for name in ("SUnreclaim", "Percpu", "VmallocUsed"))

    used = []
    for number in range(100):
        insert()
        with pair(MODULE_NAMES[number % len(MODULE_NAMES)]) as (client, peer):
            client.sendall(b"x" * 100)
            peer.recv(100)
        remove()
        used.append(kernel_memory())
    assert not SLAB.exists()
    # A debug kernel keeps what is freed for long, and reports leaks by itself.
    if Path("/sys/kernel/debug/kmemleak").exists():
        return
    # What is left of one loading can't be less than a page.
    assert min(used[-20:]) - min(used[:20]) < 80 * 4 / 2
