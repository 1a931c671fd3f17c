# SPDX-License-Identifier: BSD-2-Clause
"""MLTCP as a treatment: its backend in the kernel, jobs set in it, their sockets tagged."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import ClassVar

from mltcp_tools.kernel.backends.base import Backend, IterationEvent
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.testbed.backend import VariantJobs, describe, use_backend
from mltcp_tools.lab.testbed.treatments.base import Context, TestbedTreatment, TreatmentSession


class MltcpTreatment(TestbedTreatment):
    """Variants whose congestion control is one of MLTCP's. The backend also serves neighbours."""

    across: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._backend: Backend | None = None

    def load(self, stack: contextlib.ExitStack) -> None:
        context = self.context
        ccs = {cc for cc in context.experiment.congestion_controls() if is_mltcp(cc)}
        self._backend = stack.enter_context(
            use_backend(context.locks, ccs, context.warn, context.backend)
        )
        context.note({"backend": describe(self._backend)})

    def begin(self, variant: Variant) -> MltcpSession:
        assert self._backend is not None
        return MltcpSession(self.context, VariantJobs(self._backend, variant, self.context.new_id))


class MltcpSession(TreatmentSession):
    """The jobs of one variant in the backend, and the events of their flows."""

    def __init__(self, context: Context, jobs: VariantJobs) -> None:
        self._context = context
        self._jobs = jobs

    def __enter__(self) -> MltcpSession:
        self._jobs.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._jobs.__exit__(*error)
        self.warning = self._jobs.warning

    @property
    def events(self) -> list[tuple[str, int, IterationEvent]]:
        return self._jobs.events

    def connected(self, task: ClientTask, fds: Sequence[int]) -> None:
        self._jobs.tag(self._context.experiment.job(task.name), fds)
