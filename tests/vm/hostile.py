# SPDX-License-Identifier: BSD-2-Clause
"""The common part of tests that treat the kernel module badly: its raw interface, and its state
afterwards.

The kernel must stay free of complaints (the bridge fails a test during which it had one), and
after each test the module must unload and leave nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vm.loading import MODULE, SLAB, insert, remove
from vms.common import CACHE

from mltcp_tools.kernel.backends import attributes, genl
from mltcp_tools.kernel.backends.base import Flow, Job, JobParams
from mltcp_tools.kernel.native.uapi import GENL_NAME, Attribute, Command

PROGRAMS = CACHE / "programs"
NOBODY = 65534
PARAMS = JobParams(burst_bytes=20_000, gap_s=0.001, mechanisms=("increase", "yield"))
ORPHANS_S = 60
"""The time for which closed sockets may hold a congestion control."""

KERNELS_OWN = ("reno", "cubic", "dctcp", "bbr")

libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def module_loaded() -> Iterator[None]:
    """Unloaded afterwards, with no object and no reference to a base left."""
    for name in ("tcp_dctcp", "tcp_bbr"):
        if not Path("/sys/module", name).exists():
            subprocess.run(["modprobe", name], check=True)
    before = references()
    insert()
    yield
    if MODULE.exists():
        remove()
    assert not SLAB.exists()
    deadline = time.monotonic() + ORPHANS_S
    while references() != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert references() == before


def references() -> dict[str, int]:
    """Return how many hold the congestion controls that are modules of the kernel."""
    counts = {}
    for name in KERNELS_OWN:
        path = Path(f"/sys/module/tcp_{name}/refcnt")
        if path.exists():
            counts[name] = int(path.read_text())
    return counts


class Client:
    """The netlink interface, with the kernel's own errors. Of the namespace where it was made."""

    def __init__(self) -> None:
        self.socket = genl.GenericSocket(GENL_NAME)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def set_job(self, number: int, params: JobParams = PARAMS) -> None:
        job = Job(number, f"job {number}", params)
        self.socket.request(Command.JOB_SET, attributes.job_attributes(job))

    def delete_job(self, number: int) -> None:
        self.socket.request(Command.JOB_DEL, {Attribute.JOB_ID: struct.pack("=I", number)})

    def tag(self, fd: int, job: int) -> None:
        given = {Attribute.FD: struct.pack("=i", fd), Attribute.JOB_ID: struct.pack("=I", job)}
        self._ask_again(Command.TAG, given)

    def untag(self, fd: int) -> None:
        self._ask_again(Command.UNTAG, {Attribute.FD: struct.pack("=i", fd)})

    def meet(self, *senders: socket.socket) -> None:
        """Have the module see to their flows at once."""
        for sender in senders:
            self.untag(sender.fileno())

    def _ask_again(self, command: int, given: dict[int, bytes]) -> None:
        """An ACK may be under way in the socket just then."""
        for _ in range(1000):
            try:
                self.socket.request(command, given)
                return
            except genl.NetlinkError as error:
                if error.errno != errno.EBUSY:
                    raise
        raise AssertionError("the socket stays busy")

    def set_rule(self, folder: int, job: int, **more: bytes) -> None:
        """folder: a descriptor of a cgroup's. more: other attributes, by their names."""
        given = {Attribute.FD: struct.pack("=i", folder), Attribute.JOB_ID: struct.pack("=I", job)}
        given |= {Attribute[name.upper()]: value for name, value in more.items()}
        self.socket.request(Command.RULE_SET, given)

    def delete_rule(self, cgroup: int) -> None:
        self.socket.request(Command.RULE_DEL, {Attribute.CGROUP: struct.pack("=Q", cgroup)})

    def rules(self) -> dict[int, int]:
        """Return the job of each cgroup, by their ids."""
        found = [genl.decode(data) for data in self._dump(Command.RULE_GET)]
        return {
            genl.number(each[Attribute.CGROUP]): genl.number(each[Attribute.JOB_ID])
            for each in found
        }

    def jobs(self) -> list[int]:
        return sorted(
            attributes.job_from(genl.decode(data)).id for data in self._dump(Command.JOB_GET)
        )

    def flows(self) -> list[Flow]:
        found = [genl.decode(data)[Attribute.FLOW] for data in self._dump(Command.FLOW_GET)]
        return [attributes.flow_from(data) for data in found]

    def lost(self) -> int:
        """Return how many iterations listeners of the namespace have missed."""
        return genl.number(self.socket.request(Command.STATUS_GET, {})[Attribute.DROPPED])

    def _dump(self, command: int) -> list[bytes]:
        return self.socket.dump(command)


def dump_begun(client: Client, command: Command) -> socket.socket:
    """A socket of which each read has some more of what the command lists."""
    request = struct.pack("=IHHIIBBH", 20, client.socket.id, 0x301, 9, 0, command, 1, 0)
    reader = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
    reader.send(request)
    return reader


def dump_read(reader: socket.socket) -> list[dict[int, bytes]]:
    """Return what the next read has; nothing after the last."""
    found = [payload[4:] for _, flags, _, payload in genl.messages(reader.recv(1 << 16)) if flags]
    return [found for data in found if (found := genl.decode(data))]


@contextlib.contextmanager
def refused(number: int, why: str = "") -> Iterator[None]:
    """The kernel says that error, with a text in which `why` appears."""
    with pytest.raises(genl.NetlinkError) as raised:
        yield
    assert errno.errorcode[raised.value.errno] == errno.errorcode[number]
    assert why in raised.value.text


def in_child(function: Callable[[], None]) -> None:
    """Run it in a process of its own, which may change who and where it is; fail as it fails."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            try:
                function()
            except BaseException as error:
                said.write(f"{type(error).__name__}: {error}")
                said.flush()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        assert status == 0, said.read()


def may_open_many() -> None:
    """Let this process have some thousand descriptors."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))


def unshare(flags: int) -> None:
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")


NEWNET, NEWUSER = 0x40000000, 0x10000000


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    """In a new network namespace, which is gone afterwards but for sockets that are kept."""
    with open("/proc/thread-self/ns/net") as home:
        unshare(NEWNET)
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert not libc.setns(home.fileno(), 0)


def exchange(sender: socket.socket, peer: socket.socket, times: int = 5) -> None:
    """Send so many messages; each has to come as it was sent."""
    for number in range(times):
        message = bytes([number % 256]) * 3000
        sender.sendall(message)
        came = b""
        while len(came) < len(message) and (part := peer.recv(len(message) - len(came))):
            came += part
        assert came == message


def gone(client: Client, seconds: float = 20) -> bool:
    """Return whether all flows go, after all sockets were closed."""
    deadline = time.monotonic() + seconds
    while client.flows() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not client.flows()
