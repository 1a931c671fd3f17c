# SPDX-License-Identifier: BSD-2-Clause
"""An aggregator that may say anything: a rank refuses what can't be, and no memory is touched."""

from __future__ import annotations

import contextlib
import json
import math
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.aggregation.native import with_workers

from mltcp_tools.collectives.handshake import Admitted, MessageError
from mltcp_tools.collectives.session import Endpoint, Session, SessionError

FIELDS: dict[str, Any] = {
    "job": 0, "generation": 1, "key": 5, "slots": 64, "values": 352, "cuts": False,
    "nonce": "00" * 16,
}  # fmt: skip
NUMBERS = [0, -1, -4, 1, 3, 4, 352, 1024, 1028, 65_536, 100_000, 10**7, 2 * 10**9, 2**64, 10**400]
OTHERS = [None, True, 1.5, math.nan, math.inf, "", "4", "\ud800", [], {}, [[[]]]]


def line(**fields: Any) -> bytes:
    return json.dumps({"admitted": FIELDS | fields}).encode() + b"\n"


@contextlib.contextmanager
def aggregator(*answers: bytes) -> Iterator[Endpoint]:
    """One that answers a rank so, whatever it says, and then waits for it to go."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    connection.sendall(answer)
                while connection.recv(4096):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Endpoint("127.0.0.1", listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


CHALLENGE = json.dumps({"challenge": "00" * 16}).encode() + b"\n"


@pytest.mark.parametrize(
    "answers",
    [
        *([CHALLENGE, line(values=each)] for each in (0, 100_000, 10**7, 353, "x", None)),
        *([CHALLENGE, line(slots=each)] for each in (0, 2 * 10**9, -4, 1.0, math.nan, True)),
        *([CHALLENGE, line(key=each)] for each in (0, -1, 2**64)),
        *([CHALLENGE, line(nonce=each)] for each in ("", "zz" * 16, "00" * 17, 7)),
        [CHALLENGE, b'{"admitted": {}}\n'],
        [CHALLENGE, b'{"admitted": 7}\n'],
        [CHALLENGE, b"[" * 4000 + b"\n"],
        [CHALLENGE, b"x" * 100_000],
        [CHALLENGE, b"\xff\xfe\n"],
        [CHALLENGE, b"7\n"],
        [b'{"challenge": 7}\n'],
        [b"{}\n"],
    ],
)
def test_an_admission_that_cannot_be_is_refused(answers: list[bytes]) -> None:
    with (
        aggregator(*answers) as endpoint,
        pytest.raises(SessionError, match="sent an invalid answer"),
    ):
        Session(endpoint, "job", 0, 3, timeout_s=5)


def test_a_refusal_is_printed_without_control_characters() -> None:
    with (
        aggregator(b'{"refused": "no\\u001b[2J\\ud800\\n"}\n') as endpoint,
        pytest.raises(SessionError, match=r"^no\?\[2J\?\?$"),
    ):
        Session(endpoint, "job", 0, 3, timeout_s=5)


def test_an_admission_that_drips_ends_with_the_time_out() -> None:
    with (
        aggregator(CHALLENGE, b'{"admitted"') as endpoint,
        pytest.raises(SessionError, match=r"did not admit the job within 0\.2 s"),
    ):
        Session(endpoint, "job", 0, 3, timeout_s=0.2)


def test_random_admissions_are_within_bounds_or_refused() -> None:
    draw = random.Random(1)
    taken = 0
    for _ in range(100_000):
        fields = dict(FIELDS)
        for name in draw.sample(sorted(FIELDS), draw.randrange(3)):
            fields[name] = draw.choice(NUMBERS if draw.random() < 0.7 else OTHERS)
        if draw.random() < 0.1:
            del fields[draw.choice(sorted(fields))]
        try:
            admitted = Admitted.parse({"admitted": fields}, 1024, 352)
        except MessageError:
            continue
        taken += 1
        assert 1 <= admitted.slots <= 1024
        assert 4 <= admitted.values <= 352
        assert admitted.values % 4 == 0
    assert 1000 < taken < 90_000


def test_a_worker_of_random_sizes_is_sound_or_refused() -> None:
    """The second check, in C: whatever Python lets through, packets stay within their buffers."""
    lib, ffi = with_workers("hostile")
    report = ffi.new("struct hostile_report *")
    lib.hostile_open(3, 100_000, report)
    assert report.answers == 100_000
    assert 1000 < report.done < report.answers / 2
    assert report.broken == 0
