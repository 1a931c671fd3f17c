"""Rules of the kernel module: flows of a cgroup under its congestion controls are a job's.

A module can't be told of a connect(), so it doesn't switch what runs something else; what it drives
it tags where the flow begins. The kernel drops the rules of a process that ends.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from mltcp_tools.errors import HostError
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
        self._socket = opened
        self._rules: dict[Path, tuple[int, Catch]] = {}
        """With the id of each one's cgroup."""

    def set(self, wanted: Mapping[Path, Catch]) -> None:
        present = rules(self._socket)
        for path, (cgroup, _) in [*self._rules.items()]:
            if path not in wanted or not path.is_dir():
                del self._rules[path]
                if cgroup in present:
                    self._forget(path, cgroup)
        for path, rule in wanted.items():
            cgroup, known = self._rules.get(path, (0, None))
            if known != rule or cgroup not in present:  # it went with its job
                self._set(path, rule)

    def _set(self, path: Path, rule: Catch) -> None:
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        given: dict[int, bytes] = {
            Attribute.FD: struct.pack("=i", folder),
            Attribute.JOB_ID: struct.pack("=I", rule.job),
            Attribute.LOWEST_PORT: struct.pack("=H", rule.lowest_port),
            Attribute.NOT_PORTS: _PORTS.pack(*rule.padded_ports),
        }
        try:
            self._socket.request(Command.RULE_SET, given)
            self._rules[path] = os.fstat(folder).st_ino, rule
        except NetlinkError as error:
            self._rules.pop(path, None)
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # the job, or the cgroup, has gone
                raise _explain(error, f"Tagging new flows of {path}") from error
        finally:
            os.close(folder)

    def _forget(self, path: Path, cgroup: int) -> None:
        try:
            self._socket.request(Command.RULE_DEL, {Attribute.CGROUP: struct.pack("=Q", cgroup)})
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise _explain(error, f"Tagging no new flows of {path} any more") from error

    @property
    def cgroups(self) -> list[Path]:
        return [*self._rules]

    def close(self) -> None:
        self._socket.close()
        self._rules.clear()
