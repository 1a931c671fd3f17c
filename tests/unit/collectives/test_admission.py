# SPDX-License-Identifier: BSD-2-Clause
"""Admission of workers to a job at an aggregator, and the answer they get."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.collectives.admission import (
    Admission,
    AdmittedJob,
    Callers,
    Refused,
    Request,
)
from mltcp_tools.collectives.handshake import NONCE_BYTES, prove

CHALLENGE = bytes(NONCE_BYTES)


def request(job: str = "a", rank: int = 0, **fields: Any) -> Request:
    known = {"workers": 2, "udp_port": 5000, "values": 352, "slots": 64}
    return parsed({"job": job, "rank": rank} | known | fields)


def parsed(fields: Any, has: str = "", wanted: str = "") -> Request:
    """A request from a rank that has one token, at an aggregator that wants another."""
    line = json.dumps({"join": fields, "proof": prove(has, CHALLENGE, fields)}).encode()
    return Request.parse(line, wanted, CHALLENGE, 64, 1024)


def test_job_is_complete_with_last_rank_and_fits_all() -> None:
    admission = Admission(jobs=4, slots=256, quota=128, token="")
    assert not admission.join(request(rank=1, values=200), "one").complete
    job = admission.join(request(rank=0, slots=16), "zero")
    assert job.complete
    assert (job.values, job.slots) == (200, 16)
    assert job.ranks == {1: "one", 0: "zero"}


def admitted(admission: Admission, name: str, **fields: Any) -> AdmittedJob:
    for rank in range(2):
        job = admission.join(request(job=name, rank=rank, **fields), None)
    admission.admit(job)
    return job


def test_jobs_have_slots_keys_and_generations_of_their_own() -> None:
    admission = Admission(jobs=4, slots=256, quota=128, token="")
    jobs = [admitted(admission, name, slots=200) for name in "ab"]
    assert [(job.first, job.slots) for job in jobs] == [(0, 128), (128, 128)]  # the quota
    assert jobs[0].key != jobs[1].key
    assert jobs[0].secret != jobs[1].secret
    with pytest.raises(Refused, match="All 256 slots"):
        admitted(admission, "c")
    admission.end(jobs[0])
    again = admitted(admission, "a", slots=100)
    assert (again.index, again.first, again.slots) == (jobs[0].index, 0, 100)
    assert again.key != jobs[0].key
    assert again.generation != jobs[0].generation
    admission.end(jobs[0])  # ending the old one again leaves the new one alone
    assert again in admission.jobs


def test_jobs_that_wait_for_ranks_hold_nothing() -> None:
    admission = Admission(jobs=2, slots=256, quota=128, token="")
    for number in range(100):
        admission.join(request(job=f"hostile-{number}", slots=128), None)
    job = admitted(admission, "honest", slots=128)
    assert (job.index, job.slots) == (0, 128)
    for each in admission.jobs:
        admission.end(each)
    assert not admission.jobs


def test_connections_are_limited_per_address() -> None:
    callers = Callers()
    for _ in range(Callers.MOST_OF_ADDRESS):
        callers.enter("10.0.0.1")
    with pytest.raises(Refused, match=r"10\.0\.0\.1 has 256 connections"):
        callers.enter("10.0.0.1")
    callers.enter("10.0.0.2")
    callers.leave("10.0.0.1")
    callers.enter("10.0.0.1")
    for number in range(Callers.MOST - Callers.MOST_OF_ADDRESS - 1):
        callers.enter(f"10.1.{number % 200}.{number // 200}")
    with pytest.raises(Refused, match="takes no more"):
        callers.enter("10.0.0.3")


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        ({"workers": 3}, "has 2 workers here, not 3"),
        ({"rank": 0}, "Rank 0 of job 'a' is here already"),
    ],
)
def test_a_rank_that_does_not_belong_is_refused(second: dict[str, Any], sentence: str) -> None:
    admission = Admission(jobs=4, slots=256, quota=128, token="")
    admission.join(request(), None)
    with pytest.raises(Refused, match=sentence):
        admission.join(request(**{"rank": 1, **second}), None)


@pytest.mark.parametrize(
    ("has", "wanted", "sentence"),
    [
        ("guess", "secret", "is another one"),
        ("", "secret", "is another one"),
        ("\udcff", "secret", "is another one"),
        ("secret", "", "has no token"),
    ],
)
def test_request_without_the_token_is_refused(has: str, wanted: str, sentence: str) -> None:
    fields = vars(request())
    assert parsed(fields, wanted, wanted) == request()
    with pytest.raises(Refused, match=sentence):
        parsed(fields, has, wanted)


def test_recorded_request_is_refused_at_the_next_challenge() -> None:
    fields = vars(request())
    line = json.dumps({"join": fields, "proof": prove("secret", CHALLENGE, fields)}).encode()
    with pytest.raises(Refused, match="is another one"):
        Request.parse(line, "secret", b"1" * NONCE_BYTES, 64, 1024)


def test_there_is_an_end_to_jobs() -> None:
    admission = Admission(jobs=2, slots=256, quota=16, token="")
    for name in "ab":
        admitted(admission, name)
    with pytest.raises(Refused, match="has 2 jobs"):
        admitted(admission, "c")


@pytest.mark.parametrize(
    "fields",
    [{"rank": 2}, {"rank": -1}, {"workers": 65}, {"workers": 0}, {"udp_port": 0}, {"slots": 0},
     {"values": 3}, {"rank": True}, {"workers": "2"}, {"job": ""}, {"job": 7},
     {"job": "a\nb"}, {"job": "\ud800"}, {"slots": 1.0}, {"more": []}],
)  # fmt: skip
def test_fields_out_of_their_ranges(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        request(**fields)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_sentence(line: bytes) -> None:
    with pytest.raises(Refused):
        Request.parse(line, "", CHALLENGE, 64, 1024)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.dictionaries(st.sampled_from(["join", "job", "rank", "workers", "slots"]), inner)
            | st.lists(inner)
        ),
        max_leaves=8,
    )
)
def test_any_json_is_refused_with_a_sentence(document: Any) -> None:
    with pytest.raises(Refused):
        parsed(document)
