# SPDX-License-Identifier: BSD-2-Clause
"""The emulator processes of a variant: one server at the receiver, one client per job.

They are programs in the namespaces, driven over the control descriptor that
`mltcp_tools.lab.emulator.control` describes. They die with this process, and nothing they write
needs a file with a name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.congestion_controls import needs_ecn
from mltcp_tools.kernel.host.programs import module_command
from mltcp_tools.lab.emulator.control import receive_message
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.testbed.borrowed import borrow
from mltcp_tools.lab.testbed.namespaces import inside

PORT = 5301
# Long enough for every client to see the message before the instant it names.
START_AHEAD_S = 0.2
READY_S = 60.0
_END_S = 10.0
_WRITE_RESULT_S = 3.0
_DYING_S = 0.5


class EarlyEnd(Protocol):
    """A watch that may end a run early: readable when `check` would raise."""

    def fileno(self) -> int: ...

    def check(self) -> None: ...


@dataclass(frozen=True)
class EmulatorHosts:
    """The places of the emulators: the senders' and the receiver's namespace, and its address.

    A namespace that is None is the one this process is in. `served`: the server runs elsewhere.
    `reached_at`: where each sender has an address of its own to reach the receiver at, these.
    """

    senders: Sequence[str | None]
    receiver: str | None
    address: str
    served: bool = False
    reached_at: Sequence[str] = ()

    def address_for(self, sender: int) -> str:
        """The address at which a sender reaches the receiver."""
        return self.reached_at[sender] if self.reached_at else self.address


@dataclass
class MeasuredJobs:
    """The clients' measurements: their result documents by the name of their task.

    `start`: when the jobs started, CLOCK_MONOTONIC seconds. `duration`: seconds from then until the
    last job was done, or had ended. `cpu_busy`: share of all CPUs' time in use over that time.
    `failure` is what ended the jobs early, if anything did; documents then hold what was measured
    until then.
    """

    start: float
    duration: float = 0.0
    cpu_busy: float = 0.0
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    failure: MltcpError | KeyboardInterrupt | None = None


class Emulator:
    """One emulator process in a namespace, and our end of its control descriptor."""

    def __init__(self, name: str, namespace: str | None, arguments: Sequence[str]) -> None:
        self.name = name
        self.ended = False
        self.flows: list[int] = []
        self._files = contextlib.ExitStack()
        self._stdout = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._stderr = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self.control, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child, inside(namespace):
            self.process = subprocess.Popen(
                module_command(
                    "mltcp_tools.lab.emulator", *arguments, f"--control-fd={child.fileno()}"
                ),
                stdin=subprocess.DEVNULL,
                stdout=self._stdout,
                stderr=self._stderr,
                pass_fds=[child.fileno()],
                start_new_session=True,  # Ctrl-C on the terminal is for the testbed to handle
            )

    def close_flows(self) -> None:
        """Close our copies of the client's sockets."""
        while self.flows:
            os.close(self.flows.pop())

    def close(self) -> None:
        """End the process if it hasn't ended, and release everything."""
        self.close_flows()
        self.control.close()
        self.process.kill()
        self.process.wait()
        self._files.close()

    def complaint(self) -> str:
        """Return the sentence on why the process ended early."""
        code = self.process.wait(_END_S)
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace").rpartition("mltcp: error: ")[2].strip()
        if code < 0:
            name = signal.Signals(-code).name
            return f"The emulator of {self.name} was killed by {name} before it was done."
        return f"The emulator of {self.name} ended early with exit code {code}: {said}"

    def document(self) -> dict[str, Any] | None:
        """The result document of a process that has ended, if it wrote one."""
        self._stdout.seek(0)
        try:
            document: dict[str, Any] = json.load(self._stdout)
        except ValueError:
            return None
        return document


def _soon() -> float:
    return time.monotonic() + START_AHEAD_S


class Emulators:
    """Runs tasks at a place; `run` once per instance, as a context manager.

    `prepare` is called with each job's task and the descriptors of its sending sockets, before any
    job starts: the client's, then, where the receiver sends too, the server's. `on_iteration` is
    called with the job's name whenever one of its iterations ends, and with a neighbour's whenever
    one of its requests does.
    """

    def __init__(
        self,
        place: EmulatorHosts,
        interrupts: EarlyEnd,
        *,
        prepare: Callable[[ClientTask, Sequence[int]], None],
        on_iteration: Callable[[str], None],
    ) -> None:
        self._place = place
        self._interrupts = interrupts
        self._prepare = prepare
        self._on_iteration = on_iteration
        self._selector = selectors.DefaultSelector()
        self._processes: list[Emulator] = []
        self._server: Emulator | None = None
        self._groups: list[list[Emulator]] = []  # of each task

    def __enter__(self) -> Emulators:
        self._selector.register(self._interrupts, selectors.EVENT_READ)
        return self

    def __exit__(self, *_: object) -> None:
        for emulator in self._processes:
            emulator.close()
        self._selector.close()

    def run(
        self,
        tasks: Sequence[ClientTask],
        neighbours: Sequence[ClientTask] = (),
        start: Callable[[], float] = _soon,
    ) -> MeasuredJobs:
        """Run all tasks to their end, started at one instant; then stop the neighbours.

        `start` is called when all are ready, and says when (CLOCK_MONOTONIC seconds).
        """
        measured = MeasuredJobs(time.monotonic())
        cpu = cpu_times()
        everybody = [*tasks, *neighbours]
        self._groups = []
        try:
            self._launch(everybody)
            jobs = [client for group in self._groups[: len(tasks)] for client in group]
            others = [client for group in self._groups[len(tasks) :] for client in group]
            clients = [*jobs, *others]
            for task, group in zip(tasks, self._groups, strict=False):
                with self._sending_sockets(task, group) as fds:
                    self._prepare(task, fds)
            for client in clients:
                client.close_flows()
            measured.start = start()
            cpu = cpu_times()
            for client in clients:
                client.control.send(json.dumps({"event": "start", "at": measured.start}).encode())
            self._await(jobs, "done", _silence(tasks))
            measured.duration = time.monotonic() - measured.start
            measured.cpu_busy = cpu_busy(cpu, cpu_times())
            for client in others:
                client.control.send(json.dumps({"event": "stop"}).encode())
            self._await(others, "done", READY_S)
            for client in clients:
                client.process.wait(_END_S)
        except (MltcpError, KeyboardInterrupt) as error:
            measured.failure = error
            _stop(self._everybody(), _DYING_S if isinstance(error, MltcpError) else 0.0)
        except (OSError, subprocess.TimeoutExpired) as error:
            measured.failure = MltcpError(f"The emulators could not be controlled ({error}).")
            _stop(self._everybody(), 0.0)
        if measured.failure is not None:
            measured.duration = max(0.0, time.monotonic() - measured.start)
            measured.cpu_busy = cpu_busy(cpu, cpu_times())
        for task, group in zip(everybody, self._groups, strict=False):
            documents = [client.document() for client in group]
            known = [document for document in documents if document is not None]
            if known and len(known) == len(documents):
                measured.documents[task.name] = self._whole(task, known)
            elif measured.failure is None:
                silent = next(c for c, d in zip(group, documents, strict=True) if d is None)
                measured.failure = MltcpError(silent.complaint())
        return measured

    def _launch(self, tasks: Sequence[ClientTask]) -> None:
        """Start the processes of all tasks, until their connections are made."""
        if not self._place.served:
            arguments = server_arguments(self._place.address, *(p.spec.cc for p in tasks))
            self._server = self._start("the receiver", self._place.receiver, arguments)
            self._await([self._server], "listening", READY_S)
        for task in tasks:
            address = self._place.address_for(task.sender)
            namespace = self._place.senders[task.sender]
            # The name is for who looks at processes; the job comes over the control descriptor.
            arguments = ["client", address, f"--port={PORT}", f"--job={task.name}"]
            client = self._start(task.name, namespace, arguments)
            self._groups.append([client])
            client.control.send(job_message(task))
        self._await(self._everybody(), "connected", READY_S)

    def _everybody(self) -> list[Emulator]:
        return [client for group in self._groups for client in group]

    @contextlib.contextmanager
    def _sending_sockets(self, task: ClientTask, group: Sequence[Emulator]) -> Iterator[list[int]]:
        """Descriptors of all sockets here that send for the task, ours inside the context."""
        with _sending_sockets(task, group[0], self._server) as fds:
            yield fds

    def _whole(self, task: ClientTask, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The task's result document from those of its processes."""
        return documents[0]

    def _start(self, name: str, namespace: str | None, arguments: Sequence[str]) -> Emulator:
        self._interrupts.check()
        emulator = Emulator(name, namespace, arguments)
        self._processes.append(emulator)
        self._selector.register(emulator.control, selectors.EVENT_READ, emulator)
        return emulator

    def _await(self, emulators: Sequence[Emulator], event: str, silence_s: float) -> None:
        """Serve messages until each of `emulators` has sent `event`, its last part at that."""
        waiting = set(emulators)
        while waiting:
            ready = self._selector.select(silence_s)
            self._interrupts.check()
            if not ready:
                names = ", ".join(sorted(emulator.name for emulator in waiting))
                raise MltcpError(f"There was no message from {names} for {silence_s:.0f} s.")
            for key, _ in ready:
                message = self._receive(key.data)
                if message["event"] == event and message.get("last", True):
                    waiting.discard(key.data)

    def _receive(self, emulator: Emulator) -> dict[str, Any]:
        message, fds = receive_message(emulator.control)
        emulator.flows += fds
        if message is None:
            self._selector.unregister(emulator.control)
            if emulator.ended:
                return {"event": "ended"}
            raise MltcpError(emulator.complaint())
        if message["event"] == "failed":
            # Where the server has died, that is the reason, not the clients' loss of it.
            if self._server is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.process.wait(_DYING_S)
                    raise MltcpError(self._server.complaint())
            raise MltcpError(f"{emulator.name} failed: {message['error']}")
        if message["event"] == "iteration":
            self._on_iteration(emulator.name)
        emulator.ended = message["event"] == "done"
        return message


def _stop(clients: Sequence[Emulator], patience_s: float) -> None:
    """Have the clients write what they measured and end; those that fail too get `patience_s`."""
    _wait(clients, patience_s)
    for client in clients:
        client.process.send_signal(signal.SIGINT)
    _wait(clients, _WRITE_RESULT_S)


def _wait(clients: Sequence[Emulator], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for client in clients:
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.process.wait(max(0.0, deadline - time.monotonic()))


def cpu_times() -> tuple[int, int]:
    """Busy and all ticks of all CPUs since boot; time stolen by a hypervisor counts as busy."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def cpu_busy(before: tuple[int, int], after: tuple[int, int]) -> float:
    """Share of all CPUs' time in use between two cpu_times()."""
    return (after[0] - before[0]) / max(1, after[1] - before[1])


def _silence(tasks: Sequence[ClientTask]) -> float:
    """Seconds without any iteration after which the jobs count as stuck.

    Clients give up on a silent peer much earlier; this is for what they can't notice.
    """
    factor = max(task.spec.straggler_factor for task in tasks)
    slowest = max(task.spec.compute_s + task.spec.start_delay_s for task in tasks)
    return READY_S + 10 * max(1.0, factor) * slowest


def server_arguments(address: str, *ccs: str | None) -> list[str]:
    """Return the arguments of the server at `address`, for clients with these congestion
    controls.
    """
    arguments = ["server", "--bind", address, "--port", str(PORT)]
    needing = [cc for cc in ccs if cc and needs_ecn(cc)]
    return [*arguments, "--cc", needing[0]] if needing else arguments


def job_message(task: ClientTask, **more: Any) -> bytes:
    """Return the message that tells a client its job (control.py), or with more a rank."""
    message = {
        "event": "job",
        "name": task.name,
        "spec": dataclasses.asdict(task.spec),
        "trace_s": task.trace_ms / 1000 if task.trace_ms else None,
    }
    return json.dumps(message | more).encode()


@contextlib.contextmanager
def _sending_sockets(
    task: ClientTask, client: Emulator, server: Emulator | None
) -> Iterator[list[int]]:
    """Descriptors of all sockets here that send for the task, ours to use inside the context."""
    borrowed = []
    if task.spec.direction == "both" and server is not None:
        ends = []
        for fd in client.flows:
            with socket.socket(fileno=os.dup(fd)) as sock:
                ends.append(sock.getsockname())
        borrowed = borrow(server.process.pid, ends)
    try:
        yield client.flows + borrowed
    finally:
        for fd in borrowed:
            os.close(fd)
