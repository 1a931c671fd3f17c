# SPDX-License-Identifier: BSD-2-Clause
"""Priorities as a treatment: bottlenecks with classes, packets with levels, and the controller."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mltcp_tools.kernel.host.clsact import add_egress
from mltcp_tools.kernel.native import requirements
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.experiments.treatments import PrioritiesSettings
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.testbed.backend import socket_cookie
from mltcp_tools.lab.testbed.leftovers import priorities_folder
from mltcp_tools.lab.testbed.namespaces import inside, interfaces
from mltcp_tools.lab.testbed.qdiscs import BOTTLENECK, FIRST_CLASS, add_classes, remove_qdisc
from mltcp_tools.lab.testbed.treatments.base import (
    BuiltNetwork,
    Context,
    TestbedTreatment,
    TreatmentSession,
)
from mltcp_tools.live.priorities.coflows import LEVELS
from mltcp_tools.live.priorities.live import controller
from mltcp_tools.live.priorities.maps import KnownJob, Maps


class PrioritiesTreatment(TestbedTreatment):
    """Variants whose jobs have priorities by the order of their bursts."""

    def load(self, stack: contextlib.ExitStack) -> None:
        requirements.require_bpf(Path("/sys/fs/bpf"))

    def begin(self, variant: Variant) -> PrioritiesSession:
        return PrioritiesSession(variant.settings(PrioritiesSettings), self.context)


class PrioritiesSession(TreatmentSession):
    """Programs and maps of one variant's run, and the controller beside its jobs."""

    def __init__(self, settings: PrioritiesSettings, context: Context) -> None:
        self._settings = settings
        self._context = context
        self._folder = priorities_folder(context.run_id())
        self._stack = contextlib.ExitStack()
        self._programs: BpfObject | None = None
        self._controller: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrioritiesSession:
        with contextlib.ExitStack() as stack:
            self._folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            initial = {".rodata.classes": FIRST_CLASS.to_bytes(4, sys.byteorder)}
            self._programs = stack.enter_context(
                BpfObject(build_object("priority"), self._folder, initial)
            )
            self._maps = stack.enter_context(Maps(self._folder))
            self._stderr = stack.enter_context(tempfile.TemporaryFile())
            settings = self._settings
            running = controller(self._folder, settings.weight, LEVELS, self._stderr)
            self._controller = stack.enter_context(running)
            stack.callback(self._look)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _look(self) -> None:
        """Say so where the controller has ended before its time."""
        assert self._controller is not None
        if self._controller.poll() is not None:
            self._stderr.seek(0)
            said = self._stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
            self.warning = f"The priority controller died early, so all jobs were alike: {said}"

    def network(self, network: BuiltNetwork) -> None:
        assert self._programs is not None
        for namespace, link in network.bottlenecks():
            with inside(namespace):
                remove_qdisc(BOTTLENECK)
                add_classes(BOTTLENECK, link, LEVELS, self._settings.floor)
                add_egress(BOTTLENECK, self._programs.program_fd("classify"), "classify", 20)
        for namespace in (*network.senders, network.receiver):
            with inside(namespace):
                for interface in interfaces():
                    add_egress(interface, self._programs.program_fd("mark"), "mark", 10)

    def adapt(self, task: ClientTask) -> ClientTask:
        compress = task.spec.compress
        if compress is None:
            return task
        compress = dataclasses.replace(compress, maps=str(self._folder), number=self._number(task))
        return dataclasses.replace(task, spec=dataclasses.replace(task.spec, compress=compress))

    def _number(self, task: ClientTask) -> int:
        """The job's in the maps."""
        experiment = self._context.experiment
        return experiment.jobs.index(experiment.job(task.name)) + 1

    def connected(self, task: ClientTask, fds: Sequence[int]) -> None:
        experiment = self._context.experiment
        job = experiment.job(task.name)
        links = list(experiment.links) or [""]
        # A job that sends both ways has bursts in both directions of a link.
        ports = tuple(links.index(name) for name in job.links or ("",))
        self._maps.set_job(
            self._number(task),
            KnownJob(_burst_bytes(task.spec), _gap_ns(task.spec), ports),
            [socket_cookie(fd) for fd in fds],
        )


def _burst_bytes(spec: JobSpec) -> int:
    """Payload of a burst, over all flows and both directions."""
    ways = 2 if spec.direction == "both" else 1
    return ways * spec.bytes_per_iteration // spec.bursts


def _gap_ns(spec: JobSpec) -> int:
    """Half of the compute time between two bursts, as flows that are told their job take it."""
    return round(spec.compute_s / spec.bursts / 2 * 1e9)
