# SPDX-License-Identifier: BSD-2-Clause
"""Frameworks of other shapes than DDP, unmodified, between namespaces: MLTCP changes no result."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from train.jobs import Place, Rank, finish, switch, training, wait_for_more
from train.mltcp import bottleneck, loaded

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Network

PORT = 29860
ITERATIONS = 30
WIDTH = 128


@contextlib.contextmanager
def job(network: Network, kind: str, port: int) -> Iterator[list[Rank]]:
    """A rank behind the bottleneck, the others in front of it."""
    places = [Place(network.receiver, "to-router")]
    places += [Place(sender, "to-router") for sender in network.senders]
    program = ("shapes.py", kind)
    with training(
        places, RECEIVER_ADDRESS, port, ITERATIONS, WIDTH, 0.05, program=program
    ) as ranks:
        yield ranks


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", ["fsdp", "pipeline", "experts"])
def test_a_framework_trains_alike_under_mltcp(kind: str, count: int) -> None:
    losses = []
    with loaded(), bottleneck(count - 1, Link(100_000_000, 60_000)) as network:
        for number, cc in enumerate(("reno", "mltcp")):
            with job(network, kind, PORT + number) as ranks:
                wait_for_more(ranks, 2)
                switch(ranks, cc)
                finish(ranks)
            losses.append([rank.losses for rank in ranks])
    assert losses[0] == losses[1]
    assert [len(each) for each in losses[0]] == [ITERATIONS] * count
