# SPDX-License-Identifier: BSD-2-Clause
"""Rules of the kernel module: flows of a cgroup under its congestion controls are a job's.

A module can't be told of a connect(), so it doesn't switch what runs something else; what it drives
it tags where the flow begins. The kernel drops the rules of a process that ends.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.backends.catch import Catch, Catcher
from mltcp_tools.kernel.backends.genl import GenericSocket, NetlinkError, decode, number
from mltcp_tools.kernel.native.uapi import RULE_PORTS, Attribute, Command

_PORTS = struct.Struct(f"={RULE_PORTS}H")


def rules(opened: GenericSocket) -> dict[int, int]:
    """The job of each cgroup that has a rule for a job of this network namespace, by their ids."""
    try:
        found = [decode(data) for data in opened.dump(Command.RULE_GET)]
    except NetlinkError as error:
        raise _explain(error, "Reading the module's rules") from error
    return {number(each[Attribute.CGROUP]): number(each[Attribute.JOB_ID]) for each in found}


def _explain(error: NetlinkError, doing: str) -> HostError:
    if error.errno in (errno.EPERM, errno.EACCES):
        return HostError(
            f"{doing} failed: only root of the host may have rules for cgroups; run it there."
        )
    if error.errno == errno.EOPNOTSUPP and not error.text:
        return HostError(
            f"{doing} failed: the module that is loaded has no rules for cgroups; run `mltcp load"
            " --replace`."
        )
    return HostError(f"{doing} failed: {error.strerror}.")


class KmodCatcher(Catcher):
    """By rules of the module, which go with this object's socket, and so with this process."""

    switches = False

    def __init__(self, opened: GenericSocket) -> None:
        super().__init__()
        self._socket = opened

    def set(self, wanted: Mapping[Path, Catch]) -> None:
        present = rules(self._socket)
        for path in [*self._rules]:
            if self._rules[path][1] not in present:  # it went with its job
                del self._rules[path]
        super().set(wanted)

    def _begin(self, path: Path, folder: int, rule: Catch) -> bool:
        given: dict[int, bytes] = {
            Attribute.FD: struct.pack("=i", folder),
            Attribute.JOB_ID: struct.pack("=I", rule.job),
            Attribute.LOWEST_PORT: struct.pack("=H", rule.lowest_port),
            Attribute.NOT_PORTS: _PORTS.pack(*rule.padded_ports),
        }
        try:
            self._socket.request(Command.RULE_SET, given)
        except NetlinkError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):  # the job, or the cgroup, has gone
                return False
            raise _explain(error, f"Tagging new flows of {path}") from error
        return True

    def _end(self, path: Path, cgroup: int) -> None:
        try:
            self._socket.request(Command.RULE_DEL, {Attribute.CGROUP: struct.pack("=Q", cgroup)})
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise _explain(error, f"Tagging no new flows of {path} any more") from error

    def close(self) -> None:
        self._socket.close()
        self._rules.clear()
