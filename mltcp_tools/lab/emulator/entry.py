# SPDX-License-Identifier: BSD-2-Clause
"""One run of a client or a rank from start to end, for the command line or a parent."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.lab.emulator.client import Client, ClientOptions
from mltcp_tools.lab.emulator.control import Control
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.emulator.ranks import Assignment, RankClient
from mltcp_tools.lab.emulator.report import IterationRecord, iteration_text, summary_text

SILENCE_S = 10.0
"""The time for which the other end may be silent, where nobody says otherwise; seconds."""


def run_client(
    spec: JobSpec, options: ClientOptions, *, as_json: bool, control: Control | None = None
) -> None:
    """Run a job and write its result to stdout: as JSON, or as text, a line per iteration.

    A run that fails or is interrupted writes what it measured, then raises what ended it.
    """
    client = Client(spec, options, control, None if as_json else _print)
    _run(client, control, as_json=as_json)


def _print(iteration: IterationRecord) -> None:
    print(iteration_text(iteration), flush=True)


def run_rank(control: Control) -> None:
    """Run one rank of a job with a pattern, which the parent describes; the result to stdout."""
    _run(RankClient(Assignment.read(control.read_rank()), control), control, as_json=True)


def _run(job: Client | RankClient, control: Control | None, *, as_json: bool) -> None:
    """Run a job, write what it measured however it ended, and tell the parent."""
    result = job.result
    try:
        job.run()
    except MltcpError as error:
        result.error = str(error)
        raise
    except KeyboardInterrupt:
        result.error = "Interrupted."
        raise
    finally:
        with _uninterrupted():
            print(json.dumps(result.document()) if as_json else summary_text(result))
        if control is not None:
            if result.error is None:
                control.done()
            else:
                control.failed(result.error)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block, so that the document is written whole."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
