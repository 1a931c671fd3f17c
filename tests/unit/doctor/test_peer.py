# SPDX-License-Identifier: BSD-2-Clause
"""Facts of two hosts, compared: cases that one kernel with namespaces can't make."""

from __future__ import annotations

import sys

import pytest

from mltcp_tools import __version__
from mltcp_tools.base.errors import HostError
from mltcp_tools.doctor import peer

HERE, THERE = "10.0.0.1", "10.0.0.2"
FACTS = {
    "version": __version__,
    "port": 9,
    "settings": {"tcp_sack": "1", "tcp_timestamps": "1"},
    "builds": {"bpf": "0.1.0+1"},
    "flows": [],
    "unknown": "",
}


def facts(address, **more):
    return FACTS | {"interfaces": {address: ("eth0", 1500, 10**10)}} | more


def tried(mine, other, arrived=True, options=("SACK", "timestamps")):
    path = peer.Path(HERE, THERE, arrived, frozenset(options))
    (check,) = peer._paths("node2", mine, other, [path])
    return check.state, check.fix


@pytest.mark.parametrize(
    ("mine", "other", "state", "says"),
    [
        ({}, {}, "ok", "bpf here, bpf on node2"),
        ({"builds": {}}, {}, "warning", "nothing here"),
        ({}, {"builds": {}}, "warning", "nothing on node2"),
        ({}, {"builds": {"bpf": "0.1.0+2"}}, "warning", "bpf: 0.1.0+1 here, 0.1.0+2 on node2"),
        ({}, {"builds": {"kmod": "0.1.0+2"}}, "ok", "bpf here, kmod on node2"),
        # Who may not look doesn't say that nothing is loaded.
        ({}, {"builds": {}, "unknown": "needs root"}, "unknown", "on node2: needs root"),
    ],
)
def test_builds_that_are_loaded(mine, other, state, says):
    (check,) = peer._loading("node2", facts(HERE, **mine), facts(THERE, **other))
    assert (check.state, check.found) == (state, says)


def test_interfaces_of_other_rates_are_a_warning():
    slower = facts(THERE) | {"interfaces": {THERE: ("eth0", 1500, 10**9)}}
    state, fix = tried(facts(HERE), slower)
    assert state == "warning"
    assert "rates differ" in fix
    unknown = facts(THERE) | {"interfaces": {THERE: ("eth0", 1500, 0)}}
    assert tried(facts(HERE), unknown) == ("ok", "")


def test_option_that_a_device_between_removes_is_neither_hosts():
    state, fix = tried(facts(HERE), facts(THERE), options=("timestamps",))
    assert state == "warning"
    assert "SACK is off on the way" in fix
    assert "sysctl" not in fix


FLOW = ("gpt2", HERE, 40000, THERE, 5000)
BACK = ("bert", THERE, 5000, HERE, 40000)


@pytest.mark.parametrize(
    ("mine", "other", "lacking"),
    [
        ([FLOW], [], ["gpt2"]),
        ([FLOW], [BACK], []),  # the other end of the same connection, under another name
        ([FLOW], [("bert", THERE, 5001, HERE, 40001)], ["gpt2"]),
        ([FLOW], [("gpt2", THERE, 5001, HERE, 40001)], []),
        ([("gpt2", HERE, 40000, "10.0.0.3", 5000)], [], []),  # a third host's
        ([("gpt2", HERE, 40000, "10.244.0.9", 1)], [("x", "10.244.0.9", 2, HERE, 3)], ["gpt2"]),
    ],
)
def test_jobs_that_one_host_alone_has_attached(mine, other, lacking):
    assert peer.one_sided(facts(HERE, flows=mine), facts(THERE, flows=other)) == lacking


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("print('Last login: today')", "answered nonsense"),
        ("raise SystemExit('ssh: no route')", "no route"),
        ("pass", "ended there without an answer"),
    ],
)
def test_peer_that_does_not_answer_is_an_error(program, says):
    with pytest.raises(HostError, match=f"node2.*{says}"):
        peer.compare("node2", [sys.executable, "-c", program])
