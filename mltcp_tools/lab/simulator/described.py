# SPDX-License-Identifier: BSD-2-Clause
"""Links and jobs as the structs of simulator.h."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mltcp_tools.lab.emulator.patterns import connection_of, connections
from mltcp_tools.lab.emulator.time_shift import REALIGN
from mltcp_tools.lab.simulator.inputs import PacketJob, Program, SimulatedLink


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds of a time in seconds."""
    return round(seconds * 1e9)


class Described:
    """Makes the structs, and holds the arrays that they point to, which cffi frees otherwise."""

    def __init__(self, lib: Any, ffi: Any) -> None:
        self._lib = lib
        self._ffi = ffi
        self._arrays: list[Any] = []
        self._bases = {"reno": lib.SIM_RENO, "dctcp": lib.SIM_DCTCP, "cubic": lib.SIM_CUBIC}

    def links(self, links: Sequence[SimulatedLink]) -> Any:
        """An array of `struct sim_link`."""
        return self._array(
            [
                {
                    "rate": link.rate,
                    "loss": link.loss,
                    "queue": link.queue,
                    "bucket": link.bucket,
                    "mark_min": link.marks[0] if link.marks else 0,
                    "mark_max": link.marks[1] if link.marks else 0,
                    "rtt_ns": nanoseconds(link.rtt),
                }
                for link in links
            ],
            "struct sim_link[]",
        )

    def jobs(self, jobs: Sequence[PacketJob], trace: float) -> Any:
        """An array of `struct sim_job`; trace: seconds between samples of those that don't say."""
        return self._array([self._job(job, trace) for job in jobs], "struct sim_job[]")

    def _job(self, job: PacketJob, trace: float) -> dict[str, Any]:
        period_s = job.time_shifts.period_s if job.time_shifts else 0
        return {
            "flows": job.flows,
            "iterations": len(job.compute),
            "bursts": job.bursts,
            "mltcp": job.params is not None,
            "base": self._bases[job.base],
            "both": job.both,
            "ahead": self._array(job.ahead, "uint32_t[]"),
            "ahead_count": len(job.ahead),
            "back": self._array(job.back, "uint32_t[]"),
            "back_count": len(job.back),
            "chunk": job.chunk,
            "start_ns": nanoseconds(job.start),
            "due_ns": nanoseconds(job.due),
            "period_ns": nanoseconds(period_s),
            "realign_ns": nanoseconds(REALIGN * period_s),
            "trace_ns": nanoseconds(job.trace or trace),
            "neighbour": job.neighbour,
            "compute_ns": self._array([nanoseconds(each) for each in job.compute]),
            "bytes": self._array([size for burst in job.bytes for size in burst]),
            "compressed": self._ffi.NULL
            if job.compressed is None
            else self._array([size for burst in job.compressed for size in burst]),
            "compress_ns": self._array([nanoseconds(each) for each in job.compress]),
            "params": job.params or {},
            "follows": job.rate is not None,
            "rate": job.rate or {},
        } | ({} if job.program is None else self._program(job.program))

    def _program(self, program: Program) -> dict[str, Any]:
        number = {connection: n for n, connection in enumerate(connections(program.tasks))}
        tasks = [
            {
                "rank": task.rank,
                "ends_at": task.ends_at,
                "flow": self._lib.SIM_COMPUTES if task.to is None else number[connection_of(task)],
                "bytes": task.size,
                "share": task.share,
                "after_count": len(task.after),
                "after": self._array(task.after, "uint32_t[]"),
            }
            for task in program.tasks
        ]
        paths = [
            {
                "from": program.hosts[rank],
                "to": program.hosts[to],
                "ahead": self._array(ahead, "uint32_t[]"),
                "ahead_count": len(ahead),
                "back": self._array(back, "uint32_t[]"),
                "back_count": len(back),
            }
            for (rank, to, _), (ahead, back) in zip(number, program.paths, strict=True)
        ]
        return {
            "ranks": program.ranks,
            "task_count": len(tasks),
            "tasks": self._array(tasks, "struct sim_task[]"),
            "paths": self._array(paths, "struct sim_path[]"),
        }

    def _array(self, values: Sequence[Any], kind: str = "uint64_t[]") -> Any:
        self._arrays.append(self._ffi.new(kind, list(values)))
        return self._arrays[-1]
