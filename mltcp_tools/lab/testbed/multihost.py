# SPDX-License-Identifier: BSD-2-Clause
"""Running an experiment across machines: senders and a receiver, with this machine as the router.

On every other machine an agent (`remote.py`) is started by ssh (`machines.py`). This machine
forwards between them; its interface towards the receiver is made the bottleneck. The jobs are dealt
to the senders in turn. The rest, the run folder too, is as in a run over namespaces
(`run_experiment.py`).

Each machine has its own clock. Before a variant starts, the difference to this one's is measured
over the ssh connection, so that the jobs start at one instant, give or take half of the quickest
round trip; their times are counted from that instant on their own clock.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mltcp_tools import __version__
from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.run_tables import check_folder
from mltcp_tools.kernel.backends.base import IterationEvent
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.links import MTU
from mltcp_tools.lab.experiments.tasks import ClientTask, tasks_of, total_iterations
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.runs.progress import ProgressBar
from mltcp_tools.lab.testbed.emulators import cpu_busy, cpu_times
from mltcp_tools.lab.testbed.leftovers import require_privileges
from mltcp_tools.lab.testbed.loop import Loop, VariantOutcome
from mltcp_tools.lab.testbed.machines import END_S, Agent, Machines
from mltcp_tools.lab.testbed.marking import remove_marking
from mltcp_tools.lab.testbed.namespaces import enabled_offloads
from mltcp_tools.lab.testbed.network import local_end
from mltcp_tools.lab.testbed.qdiscs import add_bottleneck, add_delay, link_counters, remove_qdisc
from mltcp_tools.lab.testbed.run_experiment import check_rates
from mltcp_tools.lab.testbed.treatments import check_treatments

_READY_S = 180.0
# Long enough for every agent to hear of the instant before it has come.
_START_AHEAD_S = 0.5


@dataclass
class _Done:
    """The outcome of jobs that ran at once: their start (CLOCK_MONOTONIC here, seconds), the
    senders' results, and what ended them early, if anything did."""

    start: float = 0.0
    results: dict[Agent, dict[str, Any]] = field(default_factory=dict)
    failure: MltcpError | KeyboardInterrupt | None = None


def run_across(
    experiment: Experiment,
    machines: Machines,
    folder: Path,
    *,
    backend: str = "auto",
    trace_ms: int = 2,
) -> None:
    """Run `experiment` across `machines` and write its tables into `folder`, new or empty.

    Raises what ended the run early (MltcpError, KeyboardInterrupt), with the tables of what was
    measured until then written. The bottleneck and the delay stay on this machine's interfaces.
    """
    require_privileges()
    check_rates(experiment)
    for job in experiment.jobs:
        if job.direction != "send":
            raise UsageError(
                f"job {job.name} has the direction {job.direction}; across machines jobs can only"
                " send: run this experiment without --sender."
            )
    for what, present in (
        ("neighbours", experiment.neighbours),
        ("several links", experiment.links),
        ("a link with loss", experiment.link.loss),
        ("an `mtu` of its own", experiment.link.mtu != MTU),
        ("hosts with a `qdisc`", experiment.link.qdisc != "none"),
    ):
        if present:
            raise UsageError(
                f"{experiment.name} has {what}, which doesn't work across machines: run it"
                " without --sender."
            )
    check_treatments(experiment, across=True)
    check_folder(folder)
    bottleneck, _ = local_end(machines.address)
    with Signals() as interrupts, ProgressBar(total_iterations(experiment)) as progress:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.yaml").write_text(experiment.to_yaml(), encoding="utf-8")
        run = _Run(
            experiment,
            machines,
            folder,
            bottleneck,
            interrupts,
            progress,
            backend=backend,
            trace_ms=trace_ms,
        )
        run.run()


class _Run(Loop):
    """The variants of a run across machines."""

    busiest = "CPUs of the busiest machine"

    def __init__(
        self,
        experiment: Experiment,
        machines: Machines,
        folder: Path,
        bottleneck: str,
        interrupts: Signals,
        progress: ProgressBar,
        *,
        backend: str,
        trace_ms: int,
    ) -> None:
        super().__init__(experiment, folder, interrupts, progress)
        self._machines = machines
        self._bottleneck = bottleneck
        self._backend = backend
        self._trace_ms = trace_ms
        self._agents: list[Agent] = []
        self._senders: list[Agent] = []
        self._delayed: set[str] = set()
        self._clock_error = 0.0

    def load(self, stack: contextlib.ExitStack) -> None:
        self._start_agents(stack, self._backend)

    def alone_ran(self) -> None:
        """No treatment that works across machines looks at it."""

    def known_at_end(self) -> dict[str, Any]:
        return {"clock_error_s": self._clock_error}

    def _start_agents(self, stack: contextlib.ExitStack, backend: str) -> None:
        """Start all agents, wait until each is ready, and record what they say of themselves."""
        senders = self._machines.senders
        for number, host in enumerate([self._machines.receiver, *senders]):
            agent = Agent(host, self._machines)
            stack.callback(self._close, agent)
            self._agents.append(agent)
            agent.send(
                "hello",
                version=__version__,
                experiment=self.experiment.to_yaml(),
                address=self._machines.address,
                backend=backend,
                role="sender" if number else "receiver",
                number=number - 1,
                senders=len(senders),
            )
        for agent in self._agents:
            stack.callback(agent.end)  # comes before close, so that they end side by side
        self._senders = self._agents[1:]
        ready: dict[Agent, dict[str, Any]] = {}
        self._await(self._agents, "ready", ready)
        facts = {agent.host: message["machine"] for agent, message in ready.items()}
        self.environment.add(machines=facts)
        self._delayed = {local_end(facts[sender]["address"])[0] for sender in senders}
        offloads = {"this machine": enabled_offloads(self._bottleneck)}
        offloads |= {sender: facts[sender]["offloads"] for sender in senders}
        for host, names in offloads.items():
            if names:
                self.warn(
                    f"Offloads are on at {host} ({', '.join(names)}), so the queue sees packets"
                    " larger than those on the wire; switch them off with ethtool -K."
                )

    def measure(self, variant: Variant, repetition: int, position: int) -> VariantOutcome:
        self._build_link()
        done: list[_Done] = []
        cpu = cpu_times()
        for number, tasks in enumerate(tasks_of(self.experiment, variant, repetition)):
            request = {"variant": variant.name, "repetition": repetition, "group": number}
            request["trace_ms"] = self._trace_ms
            done.append(self._run_tasks(tasks, request))
            self._record(variant.name, repetition, tasks, done[0].start, done[-1])
            if done[-1].failure is not None:
                break
        results = [result for each in done for result in each.results.values()]
        last = max((result["duration"] for result in done[-1].results.values()), default=0.0)
        return VariantOutcome(
            duration=done[-1].start - done[0].start + last,
            counters=link_counters(self._bottleneck, self.experiment.link),
            cpu_busy=max(cpu_busy(cpu, cpu_times()), *(each["cpu_busy"] for each in results))
            if results
            else cpu_busy(cpu, cpu_times()),
            failure=done[-1].failure,
            warnings=[result["warning"] for result in results if result["warning"]],
        )

    def _build_link(self) -> None:
        """The experiment's link on our interfaces, with counters at 0."""
        link = self.experiment.link
        for interface in {self._bottleneck} | self._delayed:
            remove_qdisc(interface)
        remove_marking(self._bottleneck)
        add_bottleneck(self._bottleneck, link)
        for interface in self._delayed if link.delay else ():
            add_delay(interface, link)

    def _run_tasks(self, tasks: Sequence[ClientTask], request: dict[str, Any]) -> _Done:
        """Have the senders run `tasks`, started at one instant, and wait for their results."""
        senders = len(self._senders)
        agents = [self._senders[number] for number in {task.sender % senders for task in tasks}]
        done = _Done()
        try:
            for agent in agents:
                agent.send("run", **request)
            self._await(agents, "connected", done.results)
            uncertainty = max(agent.set_clock() for agent in agents)
            self._clock_error = max(self._clock_error, uncertainty)
            done.start = time.monotonic() + _START_AHEAD_S
            for agent in agents:
                agent.send("start", at=done.start + agent.clock_offset)
            self._await(agents, "done", done.results)
        except (MltcpError, KeyboardInterrupt) as error:
            done.failure = error
            left = [agent for agent in agents if agent not in done.results and not agent.ended]
            for agent in left:
                agent.send("stop")
            self._collect(left, done.results)
        return done

    def _await(
        self, agents: Sequence[Agent], event: str, results: dict[Agent, dict[str, Any]]
    ) -> None:
        """Serve messages until each of `agents` has sent `event`; keep what they report.

        Raises MltcpError where a sender's jobs failed or an agent ended, any of them.
        """
        waiting = set(agents)
        while waiting:
            for agent in self._speaking(_READY_S if event == "ready" else None):
                for message in agent.receive():
                    if message["event"] in ("ready", "done"):
                        results[agent] = message
                    if message["event"] == "iteration":
                        self.progress.iteration(message["job"])
                    if message["event"] == event:
                        waiting.discard(agent)
                    if message.get("failure"):
                        raise MltcpError(f"On {agent.host}: {message['failure']}")

    def _collect(self, agents: Sequence[Agent], results: dict[Agent, dict[str, Any]]) -> None:
        """Take the results of agents that were told to stop, as far as they come soon."""
        deadline = time.monotonic() + END_S
        waiting = set(agents)
        while waiting and (left := deadline - time.monotonic()) > 0:
            with selectors.DefaultSelector() as selector:
                for agent in waiting:
                    selector.register(agent, selectors.EVENT_READ, agent)
                ready = [key.data for key, _ in selector.select(left)]
            for agent in ready:
                try:
                    done = [each for each in agent.receive() if each["event"] == "done"]
                except MltcpError:
                    waiting.discard(agent)  # it has ended; the first failure is what counts
                else:
                    if done:
                        results[agent] = done[-1]
                        waiting.discard(agent)

    def _speaking(self, patience_s: float | None) -> list[Agent]:
        """Wait for agents that have something to say. Raises MltcpError where none has for long."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.interrupts, selectors.EVENT_READ)
            for agent in self._agents:
                selector.register(agent, selectors.EVENT_READ, agent)
            ready = [key.data for key, _ in selector.select(patience_s)]
        self.interrupts.check()
        if not ready:
            raise MltcpError(f"No machine has answered for {patience_s:.0f} s.")
        return ready

    def _record(
        self, variant: str, repetition: int, tasks: Sequence[ClientTask], first: float, done: _Done
    ) -> None:
        """Add what was measured to the tables, in times from the variant's start (ours:
        `first`)."""
        for result in done.results.values():
            start = result["start"] - (done.start - first)  # the variant's, by that machine's clock
            documents = result["documents"]
            for task in tasks:
                if document := documents.get(task.name):
                    self.tables.add_job(variant, repetition, start, task, document)
            events = [(job, flow, IterationEvent(**each)) for job, flow, each in result["events"]]
            self.tables.add_events(variant, repetition, start, events, documents)

    def _close(self, agent: Agent) -> None:
        if said := agent.close():
            self.warn(f"{agent.host}: {said}")
