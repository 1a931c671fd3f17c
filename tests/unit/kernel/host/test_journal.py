# SPDX-License-Identifier: BSD-2-Clause
"""Entries of the log, as systemd's own journal has them, and who they say did it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltcp_tools.kernel.host import journal
from mltcp_tools.live.attach.access import Change
from mltcp_tools.live.attach.audit import audit
from mltcp_tools.live.attach.state import SocketRecord

JOURNALD = Path("/lib/systemd/systemd-journald")
RECORD = SocketRecord(42, 1, 3, 4, 5, 6, ("10.0.0.1", 1000), ("10.0.0.2", 2000), "cubic", "mltcp")
ENTRY = Change(RECORD, "gpt2", "cubic", "mltcp", "switched")
LOGS = f"""
from mltcp_tools.live.attach.access import Change
from mltcp_tools.live.attach.audit import audit
from mltcp_tools.live.attach.state import SocketRecord
from mltcp_tools.kernel.host import journal
import sys
sys.argv = ["/usr/bin/mltcp", "attach", "a job"]
audit([{ENTRY!r}] * 2)
print(journal.login_uid())
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not JOURNALD.exists() or not shutil.which("journalctl"),
    reason="a journal of one's own needs root and systemd",
)
def test_the_journal_has_a_line_with_fields_for_each_change(tmp_path: Path) -> None:
    """A journal in a mount namespace of its own, so that the host's isn't touched."""
    (tmp_path / "logs.py").write_text(LOGS)
    script = f"""
        set -e
        mount -t tmpfs tmpfs /run
        mkdir -p /run/systemd/journal /run/log/journal
        {JOURNALD} >{tmp_path}/journald 2>&1 & daemon=$!
        until [ -S /run/systemd/journal/socket ]; do sleep 0.05; done
        {sys.executable} {tmp_path}/logs.py >{tmp_path}/uid
        for _ in $(seq 100); do
            journalctl -D /run/log/journal -o json JOB=gpt2 >{tmp_path}/found 2>/dev/null || true
            [ "$(wc -l <{tmp_path}/found)" = 2 ] && break
            sleep 0.1
        done
        kill $daemon
    """
    subprocess.run(["unshare", "--mount", "sh", "-c", script], check=True, timeout=120)
    found = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert len(found) == 2
    for each in found:
        assert (each["JOB"], each["OUTCOME"]) == ("gpt2", "switched")
        assert each["SOCKET"] == "10.0.0.1:1000 10.0.0.2:2000"
        assert each["BY_COMMAND"] == "mltcp attach 'a job'"
        assert each["BY_UID"] == (tmp_path / "uid").read_text().strip()
        assert (each["_UID"], each["SYSLOG_IDENTIFIER"]) == (str(os.geteuid()), "mltcp")
        assert each["MESSAGE"].startswith("gpt2: 10.0.0.1:1000 10.0.0.2:2000 cubic -> mltcp")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "socket"))
        found.settimeout(10)
        yield found


def test_a_name_makes_no_field_of_its_own(listener: socket.socket, tmp_path: Path) -> None:
    journal.log([("a\nJOB=b", {"JOB": "a\nOUTCOME=restored"})], tmp_path / "socket")
    lines = listener.recv(1 << 16).decode().splitlines()
    assert [each for each in lines if each.startswith("OUTCOME=")] == []
    assert "JOB=a?OUTCOME=restored" in lines


def test_a_journal_that_takes_nothing_holds_nobody_up(
    listener: socket.socket, tmp_path: Path
) -> None:
    journal.log([("sentence", {})] * 10_000, tmp_path / "socket")  # nobody reads
    assert b"MESSAGE=sentence" in listener.recv(1 << 16)


def test_what_was_only_planned_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[object] = []
    monkeypatch.setattr(journal, "log", logged.extend)
    audit([Change(**vars(ENTRY) | {"outcome": each}) for each in ("planned", "gone", "failed")])
    assert len(logged) == 1


def test_who_logged_in_is_who_did_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    known = int(Path("/proc/self/loginuid").read_text())
    assert journal.login_uid() == (1234 if known == 2**32 - 1 else known)
    monkeypatch.setenv("SUDO_UID", "root")
    assert journal.login_uid() == (os.getuid() if known == 2**32 - 1 else known)
