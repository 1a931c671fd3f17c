# SPDX-License-Identifier: BSD-2-Clause
"""Nothing outlives a trial: what it changed is on record, and a guardian puts it back.

The guardian is a process of its own, in a session of its own. It holds the other end of a pipe on
which the trial gives a sign of life. Where that ends, or is silent for too long, and the record is
still there, the guardian puts everything back. Should both be killed at once, the next trial or
agent does it. A reboot leaves no connection to put back.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mltcp_tools.base.errors import BusyError, MltcpError
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.host.locks import RUN_DIR, exclusive
from mltcp_tools.kernel.host.programs import module_command
from mltcp_tools.kernel.host.state_dir import TrustedFolder, boot_id
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.processes import is_running, process
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.trial.subjects import Subject, reattach, restore

TRIAL_DIR = RUN_DIR / "trial"
SILENCE_S = 20.0
"""The guardian's patience."""

_SIGN_S = 1.0
_RECORD = "trial.json"
_LOCK = "trial"
"""Of whoever changes the record, or puts back what it says."""


class Lease(Closing):
    """The record of a trial and its guardian. Closing it puts everything back.

    Raises BusyError where another trial runs on this host.
    """

    def __init__(self, subjects: Sequence[Subject], folder: Path = TRIAL_DIR) -> None:
        self._folder = folder
        self._sign_s = 0.0
        settle(folder)
        with exclusive(_LOCK):
            if _read(folder) is not None:
                raise BusyError("Another trial runs on this host; wait until it has ended.")
            for each in subjects:
                if each.before is not None:
                    StateFiles(folder).write(each.before)
            # Its own session: what is sent to the terminal's processes doesn't reach it.
            self._guardian = subprocess.Popen(
                module_command("mltcp_tools.live.trial.rollback", str(folder)),
                stdin=subprocess.PIPE,
                start_new_session=True,
                cwd="/",
            )
            pids = (os.getpid(), self._guardian.pid)
            owners = tuple((pid, process(pid).start_ticks) for pid in pids)
            _write(folder, _Record(owners, tuple(each.name for each in subjects)))
        self._open = True
        self.renew()

    def renew(self) -> None:
        """Give a sign of life, often. MltcpError where the guardian is gone or has put all back,
        or a job was withdrawn."""
        now_s = time.monotonic()
        if now_s - self._sign_s < _SIGN_S:
            return
        self._sign_s = now_s
        assert self._guardian.stdin is not None
        ended = False
        try:
            os.write(self._guardian.stdin.fileno(), b".")
        except BrokenPipeError:
            ended = True
        # A guardian that put everything back removed the record before it ended.
        if (record := _read(self._folder)) is None:
            raise MltcpError("The trial hung for so long that its jobs were restored.")
        if record.withdrawn:
            raise MltcpError(f"Somebody detached {', '.join(record.withdrawn)}.")
        if ended:
            raise MltcpError("The trial's watchdog process has ended, so the trial ends.")

    def close(self) -> None:
        """Put everything back. MltcpError names what could not be."""
        if not self._open:
            return
        self._open = False
        try:
            put_back(self._folder)
        finally:
            assert self._guardian.stdin is not None
            self._guardian.stdin.close()
            self._guardian.wait()


def put_back(folder: Path = TRIAL_DIR) -> None:
    """Give the jobs on record back what they ran before the trial, and remove the record.

    MltcpError names what could not be put back; the record goes all the same, as attached
    connections have one of their own.
    """
    with exclusive(_LOCK):
        record = _read(folder)
        if record is None:
            return
        files = StateFiles(folder)
        before = {state.job.name: state for state in files.read()}
        bad = []
        for name in record.jobs:
            try:
                # Connections that the trial attached besides go back to their own, too.
                found = restore(name)
                found += reattach(before[name]) if name in before else []
                bad += [f"{name}: {each}" for each in found]
            except MltcpError as error:
                bad.append(f"{name}: {str(error).rstrip('.')}")
        for state in before.values():
            files.remove(state.job.id)
        TrustedFolder(folder).remove(_RECORD)
    if bad:
        raise MltcpError(f"Not everything could be restored: {'; '.join(bad)}.")


def withdraw(job: str | None, folder: Path = TRIAL_DIR) -> list[str]:
    """End the trial of a job (None: of any) that somebody detaches; its jobs that stay detached.

    The trial ends within seconds and puts its other jobs back.
    """
    privileges.require_capabilities()
    with exclusive(_LOCK):
        record = _read(folder)
        names = [each for each in record.jobs if job in (None, each)] if record else []
        if record is None or not names:
            return []
        files = StateFiles(folder)
        for state in files.read():
            if state.job.name in names:
                files.remove(state.job.id)
        _write(folder, replace(record, withdrawn=(*record.withdrawn, *names)))
    return names


def settle(folder: Path = TRIAL_DIR) -> bool:
    """Put back what a trial left whose every process was killed; whether there was one."""
    record = _read(folder)
    if record is None or any(is_running(pid, start) for pid, start in record.owners):
        return False
    put_back(folder)
    return True


def jobs_on_trial(folder: Path = TRIAL_DIR) -> frozenset[str]:
    """Names of the jobs that a trial switches now."""
    record = _read(folder)
    return frozenset(record.jobs) if record is not None else frozenset()


def guard(folder: Path) -> None:
    """Act as the guardian, `python -m mltcp_tools.live.trial.rollback FOLDER`.

    The pipe is its standard input.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while select.select([0], [], [], SILENCE_S)[0]:
        if not os.read(0, 4096):
            break
    with suppress(MltcpError):  # whoever looks next finds what is left attached on record
        put_back(folder)


@dataclass(frozen=True)
class _Record:
    """Pid and start of the processes of a trial, and the names of its jobs; of those withdrawn."""

    owners: tuple[tuple[int, int], ...]
    jobs: tuple[str, ...]
    withdrawn: tuple[str, ...] = ()


def _write(folder: Path, record: _Record) -> None:
    document = {"boot_id": boot_id(), **asdict(record)}
    TrustedFolder(folder).write(_RECORD, json.dumps(document))


def _read(folder: Path) -> _Record | None:
    """The record; None where there is none, of this boot, that can be believed."""
    data = TrustedFolder(folder).parsed(_RECORD, bytes)
    if data is None:
        return None
    try:
        document = json.loads(data)
        if document["boot_id"] != boot_id():
            return None
        owners = tuple((int(pid), int(start)) for pid, start in document["owners"])
        names = (document["jobs"], document.get("withdrawn", []))  # not so in earlier builds
        return _Record(owners, *(tuple(map(str, each)) for each in names))
    except (ValueError, TypeError, KeyError):
        return None


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
