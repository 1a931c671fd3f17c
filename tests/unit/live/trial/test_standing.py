# SPDX-License-Identifier: BSD-2-Clause
"""The agent's standing proof, of jobs in virtual time."""

from __future__ import annotations

import random

import pytest
from support.simulated_jobs import Simulated, SimulatedWorld

from mltcp_tools.base.errors import UsageError
from mltcp_tools.live.agent.rules import parse_config
from mltcp_tools.live.trial.period import MLTCP
from mltcp_tools.live.trial.standing import Proof, Standing, compare

PERIOD_S = 40.0


def proof_of(effect: float, seed: int, rounds: int) -> tuple[Proof, list[int]]:
    """The proof after so many rounds, and those after which the job was taken for slower."""
    source = random.Random(seed)
    world = SimulatedWorld(seed, {"a": Simulated(effect=effect)})
    proof, slower = Proof(), []
    for number in range(1, rounds + 1):
        first = source.random() < 0.5
        found = compare(world, PERIOD_S, first)
        assert found.discarded == ""
        assert world.variant == MLTCP or first  # what follows puts it back
        proof.add(first, found.values["a"])
        if proof.is_slower(0.02):
            slower.append(number)
    return proof, slower


def test_a_job_that_gains_is_said_to() -> None:
    proof, slower = proof_of(-0.06, 1, 10)
    gain = proof.gain()
    assert slower == []
    assert gain.low is not None
    assert gain.high is not None
    assert 0 < gain.low < gain.mean < gain.high
    assert gain.mean == pytest.approx(0.058, abs=0.03)
    assert (gain.rounds, gain.p <= 0.05) == (10, True)


def test_a_job_that_loses_is_found_at_the_first_judgement() -> None:
    assert [proof_of(0.1, seed, 8)[1] for seed in range(5)] == [[8]] * 5


def test_a_job_without_an_effect_is_hardly_ever_taken_for_slower() -> None:
    assert sum(bool(proof_of(0.0, seed, 16)[1]) for seed in range(60)) <= 3


def test_a_round_in_which_something_ends_is_discarded() -> None:
    world = SimulatedWorld(1, {"a": Simulated(ends_s=1040.0)})
    found = compare(world, PERIOD_S, True)
    assert (dict(found.values), found.discarded) == ({}, "a has ended.")


def rules(prove: str) -> str:
    return f"rules: [{{job: a, command: [x]}}]\nprove: {prove}"


def test_the_rule_is_read() -> None:
    assert parse_config(rules("{}"), "f").prove == Standing(0.05, 0.02, True, 60.0)
    given = parse_config(rules("{share: 10%, slower: 0.05, then: report, period: 2min}"), "f")
    assert given.prove == Standing(0.1, 0.05, False, 120.0)
    assert parse_config("rules: [{job: a, command: [x]}]", "f").prove is None


@pytest.mark.parametrize(
    "prove", ["{share: 60%}", "{share: 0}", "{slower: 2}", "{period: 2h}", "{then: pray}", "{x: 1}"]
)
def test_a_wrong_rule_is_refused_with_its_line(prove: str) -> None:
    with pytest.raises(UsageError, match=r"f:\d+"):
        parse_config(rules(prove), "f")
