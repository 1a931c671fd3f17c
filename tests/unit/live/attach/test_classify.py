# SPDX-License-Identifier: BSD-2-Clause
"""Classification of sockets, from evidence like that of real training processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mltcp_tools.live.attach.classify import ALL, Evidence, gather, judge, wanted
from mltcp_tools.live.attach.processes import Process, process
from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.sources.nccl import NcclSource

TRAINING = Path(__file__).parents[3] / "support" / "training_process.py"
PROCESS = Process(1, 1, 0, 0, "python3", ("python3",), "/", 1)
TORCH = frozenset({"torch"})
NCCL = frozenset({"nccl"})
BOTH = frozenset({"nccl", "torch"})


def a_socket(fd, local=40000, remote=50000, sent=0, received=0, state="established"):
    return Socket(
        process=PROCESS,
        fd=fd,
        inode=fd,
        cookie=fd,
        netns=1,
        family=4,
        local=("10.0.0.1", local),
        remote=("10.0.0.2", remote),
        state=state,
        congestion_control="cubic",
        bytes_sent=sent,
        bytes_received=received,
    )


def evidence(libraries, threads=(), master_port=0):
    return Evidence(frozenset(libraries), frozenset(threads), master_port)


def kinds(found):
    return [(each.kind, each.carries_data) for each in found]


def test_nccl_with_helper_threads():
    """Two data sockets and a control one to each neighbour, and the bootstrap's ring."""
    found = judge(
        evidence(NCCL),
        [
            a_socket(1, sent=900_000_000, received=400),
            a_socket(2, sent=900_000_000, received=400),
            a_socket(3, sent=40_000, received=40_000),
            a_socket(4, received=1_800_000_000),
            a_socket(5, sent=3_000, received=3_000),
        ],
    )
    assert kinds(found) == [
        ("nccl-data", True),
        ("nccl-data", True),
        ("nccl-control", False),
        ("nccl-data", True),
        ("nccl-control", False),
    ]
    assert "80 kB, the busiest one 1.8 GB" in found[2].reason


def test_gloo_and_its_store():
    sockets = [
        a_socket(1, remote=29500, sent=9_000),
        a_socket(2, sent=50_000_000, received=50_000_000),
        a_socket(3, sent=2_000, received=2_000),
        a_socket(4, remote=443, sent=5_000_000),
        a_socket(5, local=41000, remote=0, state="listen"),
    ]
    assert kinds(judge(evidence(TORCH), sockets)) == [
        ("store", False),
        ("gloo", True),
        ("gloo", True),
        ("other", False),
        ("other", False),
    ]


@pytest.mark.parametrize(
    ("port", "master_port", "kind"),
    [(45678, 45678, "store"), (45678, 0, "gloo"), (29500, 45678, "other"), (29400, 0, "store")],
)
def test_the_store_by_its_port(port, master_port, kind):
    connecting = a_socket(1, remote=port)
    (found,) = judge(evidence(TORCH, master_port=master_port), [connecting])
    assert found.kind == kind
    assert str(port) in found.reason or kind == "gloo"
    if kind == "store":  # and the same seen from the process that has the store
        listener = a_socket(2, local=port, remote=0, state="listen")
        accepted = a_socket(3, local=port)
        both = judge(evidence(TORCH, master_port=master_port), [listener, accepted])
        assert [each.kind for each in both] == ["store", "store"]


@pytest.mark.parametrize(
    ("threads", "socket", "kind"),
    [
        (["pt_nccl_watchdg"], a_socket(1, sent=10**9, received=10**9), "nccl-data"),
        (["gloo_tcp_loop"], a_socket(1, sent=10**9), "gloo"),
        (["pt_nccl_watchdg", "pt_gloo_runloop"], a_socket(1, sent=10**9), "nccl-data"),
        ([], a_socket(1, sent=10**9, received=10**9), "gloo"),
        ([], a_socket(1, sent=10**9, received=10**5), "nccl-data"),
        ([], a_socket(1), "nccl-data"),
    ],
)
def test_torch_with_both_libraries(threads, socket, kind):
    (found,) = judge(evidence(BOTH, threads), [socket])
    assert found.kind == kind


def test_a_pair_accepted_on_a_port_that_still_listens_is_gloos():
    listener = a_socket(1, local=41000, remote=0, state="listen")
    found = judge(evidence(BOTH), [listener, a_socket(2, local=41000)])
    assert [each.kind for each in found] == ["other", "gloo"]


@pytest.mark.parametrize(
    ("file", "library", "kind"),
    [
        ("librccl.so.1", "nccl", "nccl-data"),
        ("libnccl.so.2", "nccl", "nccl-data"),
        ("libmpi.so.40", "mpi", "mpi"),
        ("libmpich.so.12", "mpi", "mpi"),
        ("libucp.so.0", "mpi", "mpi"),
        ("libccl.so.1", "oneccl", "oneccl"),
        ("jaxlib/libjax_common.so", "jax", "jax"),
    ],
)
def test_library_of_a_real_process_is_known(tmp_path, file, library, kind):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(4096))
    child = subprocess.Popen(
        [sys.executable, TRAINING, "classified", f"map={path}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        child.stdout.readline()
        found = gather(process(child.pid))
        child.stdin.close()
    assert found.libraries == {library}
    assert kinds(judge(found, [a_socket(1)])) == [(kind, True)]
    assert (NcclSource.library.match(path.name) is not None) == (library == "nccl")
    low = judge(found, [a_socket(1, remote=1025), a_socket(2, remote=443)])
    assert [each.kind for each in low] == ["mpi" if kind == "mpi" else "other", "other"]


def test_a_process_that_can_not_be_read():
    found = judge(None, [a_socket(1), a_socket(2, remote=22), a_socket(3, remote=29500)])
    assert [(each.kind, each.carries_data) for each in found] == [
        ("other", True),  # as far as its ports say
        ("other", False),
        ("other", False),
    ]
    assert all("CAP_SYS_PTRACE" in each.reason for each in found)


def test_which_are_wanted():
    found = judge(
        evidence(TORCH),
        [
            a_socket(1, remote=29500),
            a_socket(2),
            a_socket(3, state="close-wait"),
            a_socket(4, state="fin-wait-2"),
            a_socket(5, local=41000, remote=0, state="listen"),
        ],
    )

    def fds(*arguments, **options):
        return [each.fd for each in wanted(found, *arguments, **options)]

    assert fds() == [2, 3]
    assert fds(["store"]) == [1]
    assert fds(["store", "gloo"]) == [1, 2, 3]
    assert fds([ALL]) == [1, 2, 3]


@pytest.mark.parametrize("ends", [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("10.0.0.1",) * 2])
def test_connections_within_the_host_are_left_alone(ends):
    sock = replace(a_socket(1), local=(ends[0], 40000), remote=(ends[1], 50000))
    found = judge(evidence(TORCH), [sock])
    assert "shares no link" in found[0].reason
    assert wanted(found) == []
    assert wanted(found, stays_here=True) == wanted(found, ["gloo"]) == [sock]
