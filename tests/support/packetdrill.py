# SPDX-License-Identifier: BSD-2-Clause
"""Runs the TCP scripts of a packetdrill that is installed (github.com/google/packetdrill).

None of its text is here. A script runs in a network namespace and a cgroup of its own; where it
chooses a congestion control, a `sysctl` that comes before the host's chooses another one.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.kernel.host import cgroups

LOCAL, REMOTE = "192.168.0.1", "192.0.2.1"
_OPTIONS = (
    f"--send_omit_free --ip_version=ipv4 --local_ip={LOCAL} --gateway_ip={LOCAL}"
    f" --netmask_ip=255.255.0.0 --remote_ip={REMOTE} -DTFO_COOKIE=3021b9d889017eeb"
    " -DCODE=host_unreachable -DCMSG_LEVEL_IP=SOL_IP -DCMSG_TYPE_RECVERR=IP_RECVERR"
).split()
_SYSCTL = """\
#!/bin/sh
for word; do
    shift
    case $word in
    net.ipv4.tcp_congestion_control=*) word=${word%%=*}=$CONGESTION_CONTROL ;;
    esac
    set -- "$@" "$word"
done
PATH=${PATH#*:} exec sysctl "$@"
"""
_SETUP = """\
echo $$ >"$CGROUP/cgroup.procs" && echo $$ >"$TRACING/set_event_pid" &&
echo 1 >"$TRACING/tracing_on" && ip link set lo up &&
sysctl -q net.ipv4.tcp_congestion_control= && exec "$@"
"""
_TRACEFS = Path("/sys/kernel/tracing")
_PROBE = re.compile(
    r"tcp_probe: .*src=(\S+?):.* snd_una=0x(\w+) snd_cwnd=(\d+) ssthresh=(\d+)"
    r".* sock_cookie=(\w+)"
)


@dataclass(frozen=True)
class Ack:
    """A packet of the peer, and the connection just before: una, bytes acknowledged since its first
    one; cwnd and ssthresh, segments."""

    una: int
    cwnd: int
    ssthresh: int


@dataclass(frozen=True)
class Outcome:
    """A run of a script. error: where it failed and why, without times; empty: it passed. acks: of
    each connection, in the order of their first."""

    error: str
    acks: tuple[tuple[Ack, ...], ...]

    @property
    def late(self) -> bool:
        """Something came too late: the kernel's, or, on a busy host, packetdrill's."""
        return "timing error" in self.error


def installed() -> Path | None:
    """The folder named by the environment's PACKETDRILL, which holds gtests/net; None: none is."""
    named = os.environ.get("PACKETDRILL")
    return Path(named) / "gtests/net" if named else None


def _acks(trace: str) -> tuple[tuple[Ack, ...], ...]:
    """Return what tcp_probe has seen of a script's connections."""
    found: dict[str, list[Ack]] = {}
    first: dict[str, int] = {}
    for address, una, cwnd, ssthresh, cookie in _PROBE.findall(trace):
        if address == LOCAL:
            begin = first.setdefault(cookie, int(una, 16))
            ack = Ack((int(una, 16) - begin) % 2**32, int(cwnd), int(ssthresh))
            found.setdefault(cookie, []).append(ack)
    return tuple(map(tuple, found.values()))


@contextlib.contextmanager
def _tracing() -> Iterator[Path]:
    """A folder of tracefs: the tracepoint tcp_probe, of the process that writes its number to
    set_event_pid there, and its children. The kernel deals with a packet for a TUN device as the
    process that writes it."""
    instance = _TRACEFS / "instances" / _unique()
    instance.mkdir()
    try:
        (instance / "tracing_on").write_text("0")
        (instance / "options/event-fork").write_text("1")
        (instance / "events/tcp/tcp_probe/enable").write_text("1")
        yield instance
    finally:
        instance.rmdir()


def _unique() -> str:
    return f"mltcp-packetdrill-{uuid.uuid4().hex}"


@contextlib.contextmanager
def allowed(name: str) -> Iterator[None]:
    """Any namespace may choose that congestion control meanwhile."""
    names = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    before = names.read_text().split()
    names.write_text(" ".join([*before, name]))
    try:
        yield
    finally:  # others may have come or gone
        now = names.read_text().split()
        names.write_text(" ".join(each for each in now if each in before or each != name))


@contextlib.contextmanager
def cgroup() -> Iterator[Path]:
    """A new cgroup below the root."""
    path = cgroups.root() / _unique()
    path.mkdir()
    try:
        yield path
    finally:
        cgroups.remove(path.name)


class Packetdrill:
    """Runs scripts. folder: of the installed one's gtests/net; bin: an empty one."""

    def __init__(self, folder: Path, bin: Path) -> None:
        self.seen: dict[tuple[Path, str], list[Outcome]] = defaultdict(list)
        """For the caller: what a script did under a congestion control."""
        self._folder = folder
        self._path = f"{bin}:{os.environ['PATH']}"
        (bin / "sysctl").write_text(_SYSCTL)
        (bin / "sysctl").chmod(0o755)
        if not (_TRACEFS / "instances").is_dir():  # once: scripts run side by side
            subprocess.run(["mount", "-t", "tracefs", "tracefs", _TRACEFS], check=True)

    def scripts(self) -> list[Path]:
        """Those that run over IPv4, of TCP."""
        found = [each for each in self._folder.glob("tcp/**/*.pkt") if each.stem[-2:] != "v6"]
        assert found, f"no script in {self._folder / 'tcp'}"
        return sorted(found)

    def run(self, script: Path, congestion_control: str, group: Path) -> Outcome:
        """Run a script, whose connections have that congestion control, in that cgroup."""
        command = ["unshare", "--net", "sh", "-c", _SETUP, "sh"]
        command += [str(self._folder / "packetdrill/packetdrill"), *_OPTIONS, script.name]
        names = {"CONGESTION_CONTROL": congestion_control, "CGROUP": str(group)}
        with _tracing() as tracing:
            ended = subprocess.run(
                command,
                cwd=script.parent,
                env={**os.environ, **names, "TRACING": str(tracing), "PATH": self._path},
                capture_output=True,
                text=True,
                timeout=180,
            )
            acks = _acks((tracing / "trace").read_text())
        lines = [line for line in ended.stderr.splitlines() if line.startswith(script.name)]
        said = lines[0] if lines else f"exit status {ended.returncode}"
        return Outcome(re.sub(r"\d+\.\d+|0x\w+", "#", said) if ended.returncode else "", acks)
