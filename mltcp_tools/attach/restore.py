"""Put the sockets that were attached back to what they ran before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mltcp_tools.attach import privileges
from mltcp_tools.attach.borrow import Gone, borrowed, congestion_control, set_congestion_control
from mltcp_tools.attach.jobs import forget
from mltcp_tools.attach.processes import Process, processes
from mltcp_tools.attach.sockets import holders
from mltcp_tools.attach.state import LOCK, AttachedJob, SocketRecord, StateFiles
from mltcp_tools.backends import get_backend
from mltcp_tools.backends.base import ALL_NAMES
from mltcp_tools.errors import MltcpError, UsageError
from mltcp_tools.host.locks import exclusive


@dataclass(frozen=True)
class Restoration:
    """What became of one recorded socket. now: what it runs, as read back; empty when it is gone.

    outcome: `restored`; `gone` (closed since, nothing to restore); `left` (somebody gave it another
    congestion control since, which stays); `failed` (it stays recorded, and `reason` says why).
    """

    record: SocketRecord
    job: str
    now: str
    outcome: str
    reason: str = ""


def detach(
    *, job: str | None = None, pid: int | None = None, files: StateFiles | None = None
) -> list[Restoration]:
    """Put back the sockets of a job, or of a process, or all; say what became of each.

    A job without recorded sockets left is deleted from its backend, if that still has it, and its
    state file goes. Works as well when the backend is unloaded, or whoever attached has crashed.
    Raises UsageError when no such job or process is attached, HostError as `attach` does.
    """
    files = files or StateFiles()
    privileges.require_capabilities()
    with exclusive(LOCK):
        states = files.read()
        chosen = [(state, _chosen(state, job, pid)) for state in states]
        if job is not None and job not in {state.job.name for state in states}:
            raise UsageError(f"No job {job!r} is attached; {_attached(states)}.")
        if pid is not None and not any(records for _, records in chosen):
            raise UsageError(f"No socket of process {pid} is attached; {_attached(states)}.")
        done = []
        for state, records in chosen:
            if records or job == state.job.name or (job is None and pid is None):
                done += _restore_some(state, records, files)
    return done


def _chosen(state: AttachedJob, job: str | None, pid: int | None) -> list[SocketRecord]:
    if job not in (None, state.job.name):
        return []
    return [each for each in state.sockets if pid in (None, each.pid)]


def _attached(states: Iterable[AttachedJob]) -> str:
    names = ", ".join(state.job.name for state in states)
    return f"attached are: {names}" if names else "nothing is"


def _restore_some(
    state: AttachedJob, records: list[SocketRecord], files: StateFiles
) -> list[Restoration]:
    """Restore these of the job's sockets, and write down which are left."""
    restorer = _Restorer(state)
    done = [restorer.restore(each) for each in records]
    missing = {each.record.inode for each in done if each.outcome == "gone"}
    found = holders(missing, processes()) if missing else {}
    done = [
        restorer.restore(_held_by(each.record, *found[each.record.inode]))
        if each.outcome == "gone" and each.record.inode in found
        else each
        for each in done
    ]
    settled = {each.record.cookie for each in done if each.outcome != "failed"}
    left = tuple(each for each in state.sockets if each.cookie not in settled)
    if left:
        files.write(replace(state, sockets=left))
    else:
        forget(state, files)
    return done


def _held_by(record: SocketRecord, process: Process, fd: int) -> SocketRecord:
    return replace(record, pid=process.pid, start_ticks=process.start_ticks, fd=fd)


class _Restorer:
    """Restores sockets of one job."""

    def __init__(self, state: AttachedJob) -> None:
        self._job = state.job.name
        backend = get_backend(state.backend)
        self._backend = backend if backend.is_present() else None

    def restore(self, record: SocketRecord) -> Restoration:
        """Put one socket back and take its tag, unless somebody else has changed it since."""
        now = ""
        try:
            with borrowed(record.pid, record.start_ticks, record.fd, record.cookie) as ours:
                now = congestion_control(ours)
                if now != record.old and now in ALL_NAMES:
                    set_congestion_control(ours, record.old)
                now = congestion_control(ours)
                if self._backend and now in ALL_NAMES:  # another one would have taken the tag
                    self._backend.untag(ours.fileno())
        except Gone as gone:
            return Restoration(record, self._job, "", "gone", str(gone))
        except PermissionError:
            reason = f"process {record.pid} is out of reach: {privileges.reason_for_refusal()}"
            return Restoration(record, self._job, now, "failed", reason)
        except (MltcpError, OSError) as error:
            return Restoration(record, self._job, now, "failed", str(error).rstrip("."))
        if now == record.old:
            return Restoration(record, self._job, now, "restored")
        reason = f"somebody else has since switched it to {now}"
        return Restoration(record, self._job, now, "left", reason)
