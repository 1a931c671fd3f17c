# SPDX-License-Identifier: BSD-2-Clause
"""The time per iteration of real training jobs on one bottleneck, by congestion control.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_training.py ddp fsdp -o runs/training
    PYTHONPATH=tests .venv/bin/python tests/bench/bench_training.py --into tests/bench/RESULTS.md

As root, after `scripts/setup --train`; four minutes for each SHAPE, which the machine must have to
itself. Two jobs of a framework over Gloo, or with --gpu over NCCL, unmodified, share a link whose
both directions are limited. The first rank of each job is behind the link, the others are in front
of it. Their connections are switched to the variant's congestion control once they train; nothing
is told or tagged. `alone` is one of the jobs with the link to itself. Processes on one GPU take
turns there, unless NVIDIA's multi-process service lets them run at once: --gpu starts one for each
variant.

SHAPE gets a run folder in FOLDER, like that of an experiment (`mltcp report` reads it).
FOLDER is then that of a matrix with all shapes which it has; --into puts its table between the
marks of a document. The bound is that of jobs which compute first, and of
which one at a time has the link for all the rest of its iteration.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.result_tables import load_matrix_run, put_table
from train.jobs import Place, Rank, gradient_bytes, switch, training, wait_for_more
from train.mltcp import bottleneck, loaded

from mltcp_tools.base.files import replace_file
from mltcp_tools.base.run_tables import check_folder
from mltcp_tools.base.units import parse_seconds
from mltcp_tools.kernel.backends.pins import skipped_results
from mltcp_tools.kernel.host.disturbance import DisturbanceWatch
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.lab.analysis import render_matrix_text, render_text, save_matrix, write_report
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import tasks_of, total_iterations
from mltcp_tools.lab.experiments.variants import ALONE, Variant, is_mltcp
from mltcp_tools.lab.runs.progress import ProgressBar
from mltcp_tools.lab.testbed.emulators import cpu_busy, cpu_times
from mltcp_tools.lab.testbed.loop import Loop, VariantOutcome
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell

PORT = 29800
NAME = "training"
RTO_MIN = "net.ipv4.tcp_rto_min_us"
LAYERS, VALUE_BYTES = 4, 4  # of shapes.py
VARIANTS: dict[str, dict[str, Any]] = {
    "cubic": {"cc": "cubic"},
    "reno": {"cc": "reno"},
    "bbr": {"cc": "bbr"},
    "mltcp": {"cc": "mltcp"},
}


@dataclass(frozen=True)
class Shape:
    """The program of a rank, its size, and the bytes that the first rank sends per iteration.

    sent: from width, rows and ranks. before: share of the computing that comes before the first
    message.
    """

    program: tuple[str, ...]
    width: int
    rows: int
    sent: Callable[[int, int, int], float]
    description: str
    before: float = 0.5

    def words(self) -> tuple[str, ...]:
        """The program, and what goes before its other arguments."""
        script, *kind = self.program
        return (script, *(f"{each}:{self.rows}" for each in kind))


def _layers(width: int) -> int:
    return LAYERS * (width * width + width) * VALUE_BYTES


SHAPES = {
    "ddp": Shape(
        *(("ddp.py",), 512, 8),
        lambda width, rows, ranks: 2 * (ranks - 1) / ranks * gradient_bytes(width),
        "DDP: an all-reduce of the gradients behind the backward pass",
        before=1.0,
    ),
    "fsdp": Shape(
        *(("shapes.py", "fsdp"), 288, 64),
        lambda width, rows, ranks: 3 * (ranks - 1) / ranks * _layers(width),
        "FSDP: per layer two all-gathers and a reduce-scatter",
    ),
    "pipeline": Shape(
        *(("shapes.py", "pipeline"), 128, 4096),
        lambda width, rows, ranks: rows * width * VALUE_BYTES,
        "a pipeline (GPipe) of four micro-batches",
    ),
    "experts": Shape(
        *(("shapes.py", "experts"), 128, 512),
        lambda width, rows, ranks: 4 * LAYERS * (ranks - 1) / ranks * rows * width * VALUE_BYTES,
        "experts: per layer four all-to-alls",
    ),
}


def experiment_of(name: str, shape: Shape, options: argparse.Namespace) -> Experiment:
    """Return what is measured, in an experiment's terms."""
    job = {
        "count": 2,
        "bytes": f"{shape.sent(shape.width, shape.rows, options.ranks):.0f}B",
        "compute": options.idle,
        "jitter": options.jitter,
        "start": "random",
        "direction": "both",
    }
    sysctls = {RTO_MIN: round(parse_seconds(options.rto_min) * 1e6)} if options.rto_min else {}
    document = {
        "name": name,
        "description": f"two jobs of {options.ranks} ranks, {shape.description}",
        "link": {"rate": options.rate, "queue": options.queue, "offloads": options.offloads},
        "jobs": [job],
        "variants": {variant: VARIANTS[variant] for variant in options.variants},
        "sysctls": sysctls,
        "baseline": options.variants[0],
        "iterations": options.iterations,
        "repetitions": options.repetitions,
        "alone": {"iterations": options.iterations // 2},
    }
    found: Experiment = parse_experiment(json.dumps(document), "bench_training.py")
    return found


class _Run(Loop):
    """The variants of one shape."""

    busiest = "CPUs"

    def __init__(
        self,
        experiment: Experiment,
        shape: Shape,
        options: argparse.Namespace,
        folder: Path,
        interrupts: Signals,
        progress: ProgressBar,
    ) -> None:
        super().__init__(experiment, folder, interrupts, progress)
        self._shape = shape
        self._options = options

    def load(self, stack: contextlib.ExitStack) -> None:
        if any(is_mltcp(variant.cc) for variant in self.experiment.variants):
            stack.enter_context(loaded())

    def alone_ran(self) -> None:
        """Nothing here looks at it."""

    def measure(self, variant: Variant, repetition: int, position: int) -> VariantOutcome:
        tasks = tasks_of(self.experiment, variant, repetition)[0]
        others = self._options.ranks - 1
        link, sysctls = self.experiment.link, self.experiment.sysctls
        with (
            DisturbanceWatch(skipped_results) as watch,
            bottleneck(len(tasks) * others, link, sysctls) as network,
            contextlib.ExitStack() as stack,
        ):
            if self._options.gpu:
                stack.enter_context(_shared_gpu())
            jobs = [
                stack.enter_context(self._training(network, number, repetition))
                for number in range(len(tasks))
            ]
            switch([rank for ranks in jobs for rank in ranks], variant.cc)
            first = [ranks[0] for ranks in jobs]
            begin_s = wait_for_more(first, self._options.settle)
            carried, cpu = network.counters(), cpu_times()
            alone = variant.name == ALONE
            count = self.experiment.alone_iterations if alone else self.experiment.iterations
            # The iteration in which it begins is not counted.
            end_s = wait_for_more(first, count + 1)
            busy = cpu_busy(cpu, cpu_times())
            carried = network.counters() - carried
            self.attempts.judge(watch, [(begin_s, end_s)])
        for task, rank in zip(tasks, first, strict=True):
            document = self._document(rank, begin_s, count)
            self.tables.add_job(variant.name, repetition, begin_s, task, document)
        return VariantOutcome(end_s - begin_s, carried, busy)

    @contextlib.contextmanager
    def _training(self, network: Dumbbell, number: int, repetition: int) -> Iterator[list[Rank]]:
        others = self._options.ranks - 1
        places = [Place(network.receiver, "to-router")]
        places += [
            Place(sender, "to-router") for sender in network.senders[number * others :][:others]
        ]
        # The port is also the seed of the job's compute times: the same in all variants.
        port = PORT + 10 * repetition + number
        job = self.experiment.jobs[number]
        with training(
            *(places, RECEIVER_ADDRESS, port, 10_000, self._shape.width),
            *(job.compute, job.jitter, self._shape.words(), "cuda" if self._options.gpu else "cpu"),
        ) as ranks:
            yield ranks

    def _document(self, rank: Rank, begin_s: float, count: int) -> dict[str, Any]:
        """The iterations that began after `begin_s`, as the emulator's clients tell theirs."""
        size = self.experiment.jobs[0].bytes
        first = next(k for k, end_s in enumerate(rank.ends_s) if end_s >= begin_s)
        iterations = []
        for number, k in enumerate(range(first + 1, first + 1 + count), 1):
            start_s, end_s = rank.ends_s[k - 1], rank.ends_s[k]
            # What is computed between messages counts as computed before them all.
            compute_s = (rank.computed_s[k] - start_s) / self._shape.before
            burst = {"burst": 1, "start": min(start_s + compute_s, end_s), "end": end_s}
            iterations.append(
                {
                    "iteration": number,
                    "start": start_s,
                    "end": end_s,
                    "compute": compute_s,
                    "bytes": size,
                    "bursts": [burst | {"bytes": size, "first_end": end_s}],
                }
            )
        return {"iterations": iterations, "samples": []}


@contextlib.contextmanager
def _shared_gpu() -> Iterator[None]:
    """Let the processes that are started meanwhile run on the GPU at once.

    A service of its own, as clients that are killed leave theirs in a state that nobody defines.
    """
    control = "nvidia-cuda-mps-control"
    with (
        tempfile.TemporaryDirectory(prefix="mltcp-mps-") as folder,
        patch.dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder),
    ):
        subprocess.run([control, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([control], input="quit -t 1\n", text=True, check=True)


def measure(name: str, options: argparse.Namespace) -> None:
    """Run a shape's variants into its folder, and report."""
    shape, folder = SHAPES[name], options.output / name
    if options.width:
        shape = replace(shape, width=options.width)
    experiment = experiment_of(name, shape, options)
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text(experiment.to_yaml(), encoding="utf-8")
    with Signals() as interrupts, ProgressBar(total_iterations(experiment)) as progress:
        _Run(experiment, shape, options, folder, interrupts, progress).run()
    print(render_text(write_report(folder)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shapes", metavar="SHAPE", nargs="*", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", default=Path("runs", NAME))
    parser.add_argument("--into", type=Path, metavar="FILE", help="whose tables are made anew")
    parser.add_argument("--variants", default="cubic,reno,mltcp", help=f"of {','.join(VARIANTS)}")
    parser.add_argument("--ranks", type=int, default=2, help="of each job")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=50, help="per job, after settling")
    parser.add_argument("--settle", type=int, default=10, help="iterations left out")
    parser.add_argument("--rate", default="200mbit", help="in each direction")
    parser.add_argument("--queue", default="30kB")
    parser.add_argument("--offloads", action="store_true", help="stay on, as on a fast link")
    parser.add_argument("--idle", default="150ms", help="of computing")
    parser.add_argument("--jitter", default="5%", help="of it, standard deviation")
    parser.add_argument("--width", type=int, help="of the model's layers; other than the shape's")
    parser.add_argument("--gpu", action="store_true", help="over NCCL, on one GPU; ddp")
    parser.add_argument("--rto-min", metavar="TIME", help="TCP's shortest timeout")
    options = parser.parse_args()
    options.variants = options.variants.split(",")
    if unknown := (set(options.shapes) - SHAPES.keys()) | (set(options.variants) - VARIANTS.keys()):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    if options.gpu and set(options.shapes) - {"ddp"}:
        parser.error("only ddp runs on a GPU")
    for name in options.shapes:
        measure(name, options)
    folder = options.output
    there = [name for name in SHAPES if (folder / name / "iterations.csv").is_file()]
    table = NAME
    if options.gpu:
        table += f", NCCL at {options.rate}"
    elif options.queue != parser.get_default("queue"):
        table += f", a queue of {options.queue}"
    if options.ranks != 2:
        table += f", {options.ranks} ranks"
    if options.rto_min:
        table += f", timeouts from {options.rto_min}"
    document = save_matrix(folder, table, {name: SHAPES[name].description for name in there}, {})
    print(render_matrix_text(document))
    if options.into is not None:
        text = put_table(options.into.read_text(encoding="utf-8"), table, load_matrix_run(folder))
        replace_file(options.into, text.encode())


if __name__ == "__main__":
    main()
