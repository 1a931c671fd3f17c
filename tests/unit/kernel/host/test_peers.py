# SPDX-License-Identifier: BSD-2-Clause
"""Programs that speak JSON objects, one a line."""

from __future__ import annotations

from typing import Any

import pytest

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host import peers
from mltcp_tools.kernel.host.peers import PeerProgram


def heard(peer: PeerProgram) -> list[dict[str, Any]] | None:
    """The first messages that are complete."""
    while (messages := peer.read()) == []:
        pass
    return messages


def test_what_it_is_told_and_says_are_messages() -> None:
    peer = PeerProgram(["cat"])
    peer.send({"event": "clock"})
    assert heard(peer) == [{"event": "clock"}]
    assert peer.close(60.0) == 0
    assert peer.close(60.0) == 0


def test_a_message_may_come_in_pieces() -> None:
    peer = PeerProgram(["sh", "-c", """printf '{"a"'; sleep 0.1; printf ': 1}\\n'"""])
    assert heard(peer) == [{"a": 1}]
    assert heard(peer) is None
    assert peer.close(60.0) == 0


@pytest.mark.parametrize("line", ["what?", "17"])
def test_nonsense_is_shown(line: str) -> None:
    peer = PeerProgram(["printf", "{}\\n%s\\n", line])
    with pytest.raises(ValueError, match=f"b'{line[:4]}".replace("?", r"\?")):
        heard(peer)
    peer.close(60.0)


def test_what_never_ends_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "LONGEST", 100_000)
    peer = PeerProgram(["sh", "-c", "yes | tr -d '\\n'"])
    with pytest.raises(ValueError, match=r"b'yyyy.*' and on, without an end"):
        heard(peer)
    assert peer.close(60.0) != 0


def test_a_program_that_has_gone_may_be_told_something() -> None:
    peer = PeerProgram(["true"])
    assert heard(peer) is None
    peer.send({"event": "clock"})
    assert peer.close(60.0) == 0


def test_a_command_that_is_not_there_is_told() -> None:
    with pytest.raises(HostError, match="The command no-such-command is missing"):
        PeerProgram(["no-such-command"])


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("warning: slow\nmltcp: error: no such job.\n", "no such job."),
        ("ssh: Could not resolve hostname x\n", "ssh: Could not resolve hostname x"),
        ("", ""),
    ],
)
def test_a_quiet_program_says_why_it_ended(said: str, complaint: str) -> None:
    peer = PeerProgram(["sh", "-c", 'printf %s "$1" >&2; exit 3', "sh", said], quiet=True)
    assert heard(peer) is None
    assert peer.close(60.0) == 3
    assert (peer.words(), peer.complaint()) == (said.strip(), complaint)
    assert peer.close(60.0) == 3
    assert peer.complaint() == complaint


def test_of_much_that_a_quiet_program_says_the_end_is_kept() -> None:
    peer = PeerProgram(["sh", "-c", "yes | head -c 1000000 >&2; echo last >&2"], quiet=True)
    assert peer.close(60.0) == 0
    assert len(peer.words()) < 70_000
    assert peer.complaint() == "last"
