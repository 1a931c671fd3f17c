# SPDX-License-Identifier: BSD-2-Clause
"""Experiments in virtual time: run folders, what can't be simulated, and the command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from support.simulated import mean_ms

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.lab.analysis import load_run, make_report, render_text
from mltcp_tools.lab.emulator.job import compute_times
from mltcp_tools.lab.experiments.experiment import ALONE, Experiment
from mltcp_tools.lab.experiments.matrix import is_matrix
from mltcp_tools.lab.experiments.reading import find_experiment, load_experiment, parse_experiment
from mltcp_tools.lab.experiments.tasks import tasks_of
from mltcp_tools.lab.simulator import library
from mltcp_tools.lab.simulator.modelled import modelled
from mltcp_tools.lab.simulator.simulate_experiment import simulate_experiment
from mltcp_tools.lab.simulator.variants import SimulationSettings, simulate_variant

CHECKOUT = Path(__file__).parents[4]

SMALL = """\
name: small
link: {rate: 200mbit, queue: 30kB}
jobs:
  - {name: one, bytes: 500kB, compute: 60ms, jitter: 5%, start: random, flows: 2}
  - name: two
    bytes: 1MB
    compute: 90ms
    bursts: 2
    start: 20ms
    straggler: {every: 3, factor: 2}
    iterations: 7
variants:
  bbr: {cc: bbr}
  reno: {cc: reno}
  mltcp: {cc: mltcp}
iterations: 9
repetitions: 2
alone: {iterations: 4}
"""


def small(**fields: str) -> Experiment:
    text = SMALL + "".join(f"{key}: {value}\n" for key, value in fields.items())
    return modelled(parse_experiment(text, "small.yaml"))[0]


def shipped(name: str, iterations: int = 60, repetitions: int = 3) -> Experiment:
    experiment, _ = modelled(load_experiment(find_experiment(name)))
    return experiment.override(iterations=iterations, repetitions=repetitions)


def test_a_run_folder_is_the_testbeds(tmp_path: Path) -> None:
    simulate_experiment(small(), tmp_path)
    run = load_run(tmp_path)
    assert run.problems == []
    assert run.environment["simulated"] is True
    assert run.environment["outcome"] == "finished"
    assert run.variant_names == ["reno", "mltcp"]
    assert run.baseline == "reno"
    counts = run.iterations.groupby(["variant", "job"])["iteration"].max().to_dict()
    assert counts[("mltcp", "one")] == 9
    assert counts[("reno", "two")] == 7
    assert counts[(ALONE, "one")] == 4
    assert run.bursts[run.bursts["job"] == "two"]["burst"].max() == 2
    assert set(run.flow_events["job"]) == {"one", "two"}
    assert not run.samples.empty
    report = make_report(run)
    assert {"iterations", "timeline", "cdf", "windows"} <= set(report.images)
    assert "Simulated, not measured" in render_text(report.result)
    assert "Simulated, not measured" in report.html


def test_compute_times_and_starts_are_those_of_the_testbed(tmp_path: Path) -> None:
    experiment = small()
    simulate_experiment(experiment, tmp_path)
    table = load_run(tmp_path).iterations
    for repetition in (1, 2):
        for variant in ("reno", "mltcp"):
            for task in tasks_of(experiment, experiment.variant(variant), repetition)[0]:
                rows = table[
                    (table["variant"] == variant)
                    & (table["repetition"] == repetition)
                    & (table["job"] == task.name)
                ]
                assert rows["compute_s"].tolist() == pytest.approx(list(compute_times(task.spec)))
                assert rows["start_s"].iloc[0] == pytest.approx(task.spec.start_delay_s)
                took = rows["end_s"] - rows["start_s"] - rows["comm_s"]
                assert took.tolist() == pytest.approx(rows["compute_s"].tolist())


def test_a_folder_is_the_same_however_many_threads_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate_experiment(small(), tmp_path / "all")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    simulate_experiment(small(), tmp_path / "one")
    for name in ("iterations", "bursts", "samples", "flow_events", "variants"):
        first, second = ((tmp_path / run / f"{name}.csv").read_text() for run in ("all", "one"))
        assert first == second


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("link: {offloads: true}", "offloads"),
        ("sysctls: {net.ipv4.tcp_sack: 0}", "sysctl net.ipv4.tcp_sack"),
        ("sysctls: {net.ipv4.tcp_rto_min_us: soon}", "tcp_rto_min_us = soon"),
        ("sysctls: {net.ipv4.tcp_rto_min_us: 200000000}", "tcp_rto_min_us = 200000000"),
        ("neighbours: [{name: n, cc: bbr}]", "bbr of neighbour n"),
        (
            "variants: {reno: {cc: reno}, m: {cc: mltpc}}",
            "`cc: mltpc`, which .* did you mean mltcp",
        ),
        (
            "variants: {b: {cc: bbr}, c: {cc: nv}}",
            "variant b of experiment e .* bbr isn't modelled",
        ),
    ],
)
def test_what_is_not_modelled_is_refused(text: str, complaint: str) -> None:
    fields = {
        "name": "name: e",
        "jobs": "jobs: [{bytes: 1MB, compute: 1s}]",
        "variants": "variants: {reno: {cc: reno}}",
    }
    fields[text.partition(":")[0]] = text
    document = "\n".join(fields.values())
    with pytest.raises(UsageError, match=complaint):
        modelled(parse_experiment(document, "e.yaml"))


def test_parameters_of_a_variant_reach_the_algorithm() -> None:
    text = SMALL.replace(
        "  mltcp: {cc: mltcp}\n",
        "  mltcp: {cc: mltcp}\n"
        "  plain: {cc: mltcp_reno}\n"
        "  same: {cc: mltcp, mechanisms: [increase]}\n"
        "  steep: {cc: mltcp_reno, slope: 4}\n"
        "  selected: {cc: mltcp, attached: false}\n",
    ).replace("flows: 2", "flows: 1")
    experiment, _ = modelled(parse_experiment(text, "small.yaml"))
    documents = {
        variant.name: [
            d["iterations"] for _, d in simulate_variant(experiment, variant, 1).documents
        ]
        for variant in experiment.variants
    }
    assert documents["plain"] == documents["same"]
    assert documents["plain"] not in (documents["reno"], documents["mltcp"], documents["steep"])
    assert documents["selected"] not in (documents["mltcp"], documents["reno"])


# Milliseconds measured on the testbed (README.md). The simulator leaves out much of what hosts do,
# so the margins are wide.
@pytest.mark.parametrize(
    ("name", "reno", "cubic", "mltcp"),
    [("two-jobs", 256, 243, 232), ("four-jobs", 522, 528, 461), ("deep-queue", 529, 504, 459)],
)
def test_it_comes_near_to_what_was_measured(
    name: str, reno: float, cubic: float, mltcp: float
) -> None:
    experiment = shipped(name)
    assert mean_ms(experiment, "reno") == pytest.approx(reno, rel=0.06)
    assert mean_ms(experiment, "cubic") == pytest.approx(cubic, rel=0.1)
    assert mean_ms(experiment, "mltcp") == pytest.approx(mltcp, rel=0.04)
    alone = simulate_variant(experiment, experiment.variant(ALONE), 1).documents[0][1]["iterations"]
    burst = alone[-1]["bursts"][0]
    if name != "two-jobs":
        assert burst["end"] - burst["start"] == pytest.approx(0.1046, rel=0.01)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    assert main(["simulate", "small.yaml", "--iterations", "5", "-o", "out", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["variants"]["mltcp"]["iteration_s"]["count"] == 2 * (5 + 4)
    assert "warning: left out variants whose parts can't be simulated: bbr\n" in said.err
    assert pd.read_csv("out/iterations.csv")["iteration"].max() == 5
    assert main(["simulate", "small.yaml", "--variants", "bbr"]) == 2
    assert "bbr isn't modelled" in capsys.readouterr().err
    assert main(["simulate", "small.yaml", "-o", "out"]) == 2
    said = capsys.readouterr().err
    assert "until then" not in said
    assert "isn't an empty folder" in said
    assert main(["simulate", "nothing"]) == 2
    said = capsys.readouterr().err
    assert "testbed list" in said
    assert main(["simulate", "small.yaml", "--only", "x"]) == 2
    assert "small.yaml is an experiment" in capsys.readouterr().err


MATRIX = """\
name: few
defaults:
  experiment: small.yaml
  iterations: 6
  repetitions: 1
  variants:
    bbr: {cc: bbr}
    reno: {cc: reno}
    m: {cc: mltcp}
scenarios:
  same: {}
  lossy: {link: {loss: 1%}}
  whole: {link: {offloads: true}}
"""


def test_a_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    Path("few.yaml").write_text(MATRIX)
    assert is_matrix("few.yaml")
    assert is_matrix("hard-scenarios")
    assert not is_matrix("small.yaml")
    assert not is_matrix("four-jobs")
    assert main(["simulate", "few.yaml"]) == 1
    said = capsys.readouterr()
    assert "1 of 3 scenarios have no result (whole)" in said.err
    assert "`offloads` of the link isn't modelled" in " ".join(said.out.split())
    document = json.loads(Path("runs/few-simulated/matrix.json").read_text())
    assert document["scenarios"]["lossy"]["variants"]["m"]["mean_s"] > 0
    assert main(["simulate", "few.yaml", "--only", "same"]) == 0
    assert "same: finished before" in capsys.readouterr().err
    environment = Path("runs/few-simulated/same/environment.json")
    measured = json.loads(environment.read_text()) | {"simulated": False}
    environment.write_text(json.dumps(measured))
    assert main(["simulate", "few.yaml", "--only", "same"]) == 2
    assert "was measured; name another folder with -o" in capsys.readouterr().err


PATHS = """
name: paths
jobs:
  - {name: a, bytes: 300kB, compute: 40ms, links: [one]}
  - {name: b, bytes: 300kB, compute: 40ms, links: [one, two]}
links: {one: {rate: 50mbit, queue: 30kB}, two: {rate: 25mbit, queue: 30kB}}
variants: {reno: {cc: reno}, mltcp: {cc: mltcp}}
iterations: 3
repetitions: 1
alone: {iterations: 3}
"""


def test_a_job_alone_takes_what_its_slowest_link_takes() -> None:
    experiment, _ = modelled(parse_experiment(PATHS, "paths.yaml"))
    alone = {
        task.name: document["iterations"]
        for task, document in simulate_variant(experiment, experiment.variant(ALONE), 1).documents
    }
    for name, rate in (("a", 50e6), ("b", 25e6)):
        burst = alone[name][-1]["bursts"][0]
        carried = 300_000 / 1448 * 1514 * 8 / rate
        assert carried < burst["end"] - burst["start"] < 1.1 * carried


def test_packets_and_round_trips_are_those_asked_for(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    command = ["simulate", str(tmp_path / "small.yaml"), "--variants", "reno", "--trace", "0"]
    more = ["--mtu", "9kB", "--rtt", "5ms", "--gro", "20us", "--bucket", "20480B"]
    assert main([*command, "-o", str(tmp_path / "usual")]) == 0
    assert main([*command, *more, "-o", str(tmp_path / "other")]) == 0
    variants = [pd.read_csv(tmp_path / run / "variants.csv") for run in ("usual", "other")]
    assert variants[1]["link_packets"].max() < variants[0]["link_packets"].max() / 5
    assert variants[1]["duration_s"].min() > variants[0]["duration_s"].min()
    environment = json.loads((tmp_path / "other" / "environment.json").read_text())
    assert (environment["mtu"], environment["rtt_s"], environment["join_s"]) == (
        9000,
        pytest.approx(5e-3),
        pytest.approx(20e-6),
    )
    assert environment["bucket"] == 20480


def test_interrupt_coalescing_makes_rtts_longer() -> None:
    """Both ends' together by two fifths of the most, at least: in each of the jobs' iterations."""
    experiment, _ = modelled(parse_experiment(SMALL, "small.yaml"))
    variant = experiment.variant("mltcp")
    at_once, coalesced = (
        simulate_variant(experiment, variant, 1, SimulationSettings(coalescing_s=most)).duration
        for most in (0, 10e-3)
    )
    assert coalesced > at_once + 7 * 2 * 2e-3


def test_no_memory_is_misused(tmp_path: Path) -> None:
    folder = Path(library.__file__).parent
    program = tmp_path / "simulate"
    sanitizers = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    sources = [Path(__file__).parents[2] / "data" / "simulate.c", *sorted(folder.glob("*.c"))]
    headers = [f"-I{folder}", f"-I{CHECKOUT / 'kmod'}"]
    command = ["gcc", *sanitizers, *warnings, *headers, "-o", program, *sources, "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "timeouts" in done.stdout
