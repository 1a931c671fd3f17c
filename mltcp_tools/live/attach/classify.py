# SPDX-License-Identifier: BSD-2-Clause
"""The kind of traffic of a training process's socket, as far as it can be seen from outside.

NCCL and torch's store and Gloo don't name their connections, so this weighs what they can't help
showing: the libraries and threads of the process, its MASTER_PORT, which ports the system chose,
and how many bytes went which way (NCCL's data goes one way on a connection, Gloo's goes both; its
control connections move next to nothing). Each classification comes with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from mltcp_tools.base.units import format_bytes
from mltcp_tools.live.attach.environment import Environment, read_environment
from mltcp_tools.live.attach.processes import PROC, Process
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket

ALL = "all"
"""In place of a kind: every one."""

KINDS = ("nccl-data", "nccl-control", "gloo", "oneccl", "mpi", "jax", "store", "other")
"""Kinds of sockets: NCCL's (and RCCL's) data and control connections, a Gloo pair, a connection of
oneCCL, MPI or JAX, torch's store or rendezvous, and all else."""

MUCH = 1_000_000
"""Bytes: no control connection moves as many in any while that matters, one tensor easily does."""

NCCL_FILE = re.compile(r"lib[nr]ccl\.so")
"""NCCL's library and AMD's RCCL, which exports the same functions."""

_LIBRARIES = {
    "nccl": re.compile(rf"/{NCCL_FILE.pattern}"),
    "gloo": re.compile(r"/libgloo[^/]*\.so"),
    "torch": re.compile(r"/libtorch(_cpu)?\.so"),  # the CPU library has Gloo built in
    "oneccl": re.compile(r"/libccl\.so"),
    "mpi": re.compile(r"/lib(mpi|mpich|ucp)\.so"),
    "jax": re.compile(r"/jaxlib/"),
}
_OTHERS = {"oneccl": "oneCCL", "mpi": "MPI or UCX", "jax": "JAX"}
"""Libraries beside NCCL and Gloo, as people call them, the first one first."""

_LOWEST_OF_MPI = 1024
"""From this port on Open MPI listens, whatever the system would choose."""

_NCCL_THREADS = ("pt_nccl_", "NCCL ")
_GLOO_THREADS = ("pt_gloo_", "gloo_tcp_")
_STORE_PORTS = {29500: "torch's default", 29400: "torchrun's default"}
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DEFAULT_LOWEST_PORT = 32768


@dataclass(frozen=True)
class Evidence:
    """The facts that a process shows of itself.

    libraries: which of _LIBRARIES it has mapped. threads: their names. master_port: of its
    environment, 0 when there is none. lowest_port: from which on the system chooses ports.
    """

    libraries: frozenset[str]
    threads: frozenset[str]
    master_port: int
    lowest_port: int = _DEFAULT_LOWEST_PORT


@dataclass(frozen=True)
class Classified:
    """The kind that a socket looks like. reason: one sentence for people.

    carries_data: whether that kind does. stays_here: whether both ends are on this host, so that it
    shares no link. `attach` takes those that carry data to other hosts, unless told otherwise.
    """

    socket: Socket
    kind: str
    reason: str
    carries_data: bool
    stays_here: bool = False


def classify(process: Process, sockets: Sequence[Socket]) -> list[Classified]:
    """The classification of each of the process's sockets (all, as they explain one another)."""
    return judge(gather(process), sockets)


def wanted(
    found: Iterable[Classified], kinds: Collection[str] = (), stays_here: bool = False
) -> list[Socket]:
    """The sockets that can send and are of these kinds; without any, those that carry data, to
    other hosts unless stays_here."""
    return [
        each.socket
        for each in found
        if each.socket.state in CAN_SEND
        and (
            {each.kind, ALL} & {*kinds}
            if kinds
            else each.carries_data and (stays_here or not each.stays_here)
        )
    ]


def gather(process: Process) -> Evidence | None:
    """Return the process's evidence; None where this user may not look, or it has ended."""
    folder = PROC / str(process.pid)
    try:
        maps = (folder / "maps").read_text(errors="replace")
        threads = frozenset(_thread_names(folder / "task"))
    except OSError:
        return None
    environment = read_environment(process.pid)
    if environment is None:
        return None
    libraries = frozenset(name for name, pattern in _LIBRARIES.items() if pattern.search(maps))
    return Evidence(libraries, threads, _master_port(environment), _lowest_port())


def ports_of_others(found: Iterable[Process]) -> tuple[int, tuple[int, ...]]:
    """Return what the ports of connections say before any data: the lowest one that training
    libraries use, and those of the stores of these processes.
    """
    ports = set(_STORE_PORTS)
    for each in found:
        evidence = gather(each)
        if evidence is not None and evidence.master_port:
            ports.add(evidence.master_port)
    return _lowest_port(), tuple(sorted(ports, key=lambda port: port in _STORE_PORTS))


def _thread_names(tasks: Path) -> Iterable[str]:
    for task in tasks.iterdir():
        with suppress(OSError):  # a thread that has ended
            yield (task / "comm").read_text(errors="replace").rstrip("\n")


def _master_port(environment: Environment) -> int:
    value = environment.get("MASTER_PORT") or ""
    return int(value) if value.isdecimal() and len(value) <= 5 else 0


def _lowest_port() -> int:
    """Of this host. A peer's may be higher, but rarely is any but the default in use."""
    return min(int(_PORT_RANGE.read_text().split()[0]), _DEFAULT_LOWEST_PORT)


def judge(evidence: Evidence | None, sockets: Sequence[Socket]) -> list[Classified]:
    """The classification of a process's sockets, from its evidence."""
    busiest = max((_moved(each) for each in sockets if each.state != "listen"), default=0)
    listening = {each.local[1] for each in sockets if each.state == "listen"}
    found = []
    for each in sockets:
        kind, reason = _judge_one(evidence, each, listening, busiest)
        carries_data = each.state in CAN_SEND and (
            kind in ("nccl-data", "gloo", *_OTHERS)
            or (_chosen_by_system(each) if evidence is None else not evidence.libraries)
        )
        if stays_here := each.state != "listen" and _stays_here(each):
            reason += "; both ends are on this host, so it shares no link"
        found.append(Classified(each, kind, reason, carries_data, stays_here))
    return found


def _stays_here(sock: Socket) -> bool:
    return sock.remote[0] == sock.local[0] or ip_address(sock.remote[0]).is_loopback


def _judge_one(
    evidence: Evidence | None, sock: Socket, listening: Collection[int], busiest: int
) -> tuple[str, str]:
    """Kind and reason, by the first of these that says something."""
    if evidence is None:
        may = "may carry data" if _chosen_by_system(sock) else "is a service's"
        return "other", f"its process can't be read without CAP_SYS_PTRACE; by its ports it {may}"
    if not evidence.libraries:
        return "other", "no training library is in the process"
    accepted = sock.local[1] in listening
    service = sock.local[1] if accepted or sock.state == "listen" else sock.remote[1]
    if store := _store_port(evidence, service):
        return "store", store
    if sock.state == "listen":
        return "other", "it listens"
    low = min(sock.local[1], sock.remote[1])
    other = _other_library(evidence)
    if low < (_LOWEST_OF_MPI if other == "mpi" else evidence.lowest_port):
        return "other", f"port {low} belongs to a service; training libraries let the system choose"
    if other:
        return other, f"{_OTHERS[other]} is in the process, and neither NCCL nor Gloo runs there"
    nccl, why = _is_nccl(evidence, sock, accepted)
    if not nccl:
        return "gloo", why
    if busiest >= MUCH and _moved(sock) < min(MUCH, busiest / 100):
        return "nccl-control", (
            f"{why}; it has moved {format_bytes(_moved(sock))}, the busiest one"
            f" {format_bytes(busiest)}"
        )
    if busiest < MUCH:
        return "nccl-data", f"{why}; too little has moved yet to tell data from control"
    return "nccl-data", f"{why}; it has moved {format_bytes(_moved(sock))}"


def _chosen_by_system(sock: Socket) -> bool:
    """Return whether both ports are of those that the system chooses, and neither is a usual
    store's.
    """
    ports = {sock.local[1], sock.remote[1]}
    return min(ports) >= _lowest_port() and not ports & _STORE_PORTS.keys()


def _store_port(evidence: Evidence, port: int) -> str:
    """Return the reason why a port is the store's; empty when it isn't."""
    if port == evidence.master_port:
        return f"port {port} is the process's MASTER_PORT"
    if "torch" in evidence.libraries and not evidence.master_port and port in _STORE_PORTS:
        return f"port {port} is {_STORE_PORTS[port]} for the store"
    return ""


def _other_library(evidence: Evidence) -> str:
    """Return the library beside NCCL and Gloo that sends; empty where one of these two does."""
    if "nccl" in evidence.libraries or _runs(evidence, _GLOO_THREADS):
        return ""
    return next((each for each in _OTHERS if each in evidence.libraries), "")


def _runs(evidence: Evidence, threads: tuple[str, ...]) -> bool:
    return any(name.startswith(threads) for name in evidence.threads)


def _is_nccl(evidence: Evidence, sock: Socket, accepted: bool) -> tuple[bool, str]:
    """Return whether a connection between two ports the system chose is NCCL's (else Gloo's),
    and why.
    """
    has_gloo = bool(evidence.libraries & {"gloo", "torch"})
    if "nccl" not in evidence.libraries:
        return False, "Gloo is in the process, NCCL isn't"
    if not has_gloo:
        return True, "NCCL is in the process, Gloo isn't"
    # torch's CUDA build maps both, whichever is used; its threads tell, if named.
    nccl_runs, gloo_runs = (_runs(evidence, each) for each in (_NCCL_THREADS, _GLOO_THREADS))
    if nccl_runs != gloo_runs:
        return nccl_runs, f"only {'NCCL' if nccl_runs else 'Gloo'} has threads in the process"
    less, more = sorted((sock.bytes_sent, sock.bytes_received))
    if more >= MUCH:
        if less > more / 10:
            return False, "bytes went both ways, as Gloo sends them"
        return True, "bytes went one way, as NCCL sends them"
    if accepted:
        return False, "it was accepted on a port that still listens, as Gloo does"
    return True, "NCCL and Gloo are in the process"


def _moved(sock: Socket) -> int:
    return sock.bytes_sent + sock.bytes_received
