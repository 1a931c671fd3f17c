# SPDX-License-Identifier: BSD-2-Clause
"""Runs the tests of tests/vm/inside in VMs, and takes their reports over as if run here.

On the host the first test boots one VM per kernel, in which pytest runs all selected tests that
want the same machine; its reports come back as lines of JSON. What the VM's kernel complained of
on its console fails the test that ran then. A VM that ends early fails the test that ran then,
and the tests behind that one get another VM.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from vms import boot, kernels
from vms.common import CACHE, CHECKOUT, LACKING
from vms.log import problems

GUEST = os.environ.get("MLTCP_GUEST")
"""In a VM: the suite of its kernel. None on the host."""

REPORTS = "MLTCP_GUEST_REPORTS"

QUICK = ("bookworm",)
FULL = tuple(kernels.SUITES)

VM = CHECKOUT / "scripts" / "vm"

INSIDE = Path(__file__).parent / "inside"

SILENCE_S, LONG_S = 1200, 5 * 3600
"""A VM in which no test ends for so long is ended, the latter where tests are marked full. A
test by itself ends sooner, by pytest's `timeout`."""

_MARK = "mltcp-test: "


def suites(config: pytest.Config) -> tuple[str, ...]:
    """The kernels to test on."""
    if GUEST:
        return (GUEST,)
    named = config.getoption("vms")
    if named:
        return tuple(named.split(","))
    return FULL if config.getoption("full") else QUICK


@dataclass(frozen=True)
class Needs:
    """The demands of a file's tests on their VM: arguments of the marker `VM`."""

    cpus: int = 2
    mem: str = "2G"
    icount: bool = False
    append: str = ""  # to the kernel's command line

    @classmethod
    def of(cls, item: pytest.Item) -> Needs:
        mark = item.get_closest_marker("VM")
        return cls(**mark.kwargs) if mark else cls()

    def options(self) -> list[str]:
        options = [f"--cpus={self.cpus}", f"--mem={self.mem}"]
        options += [f"--append={self.append}"] if self.append else []
        return [*options, *(["--icount"] if self.icount else [])]

    @property
    def machine(self) -> tuple[int, str, bool, str]:
        """Tests that agree on this can share a VM."""
        return self.cpus, self.mem, self.icount, self.append


class InVm:
    """The VM's side: marks each test on the console, hands each report over."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports = open(os.environ[REPORTS], "a", buffering=1)  # noqa: SIM115
        self._console = open("/dev/kmsg", "w", buffering=1)  # noqa: SIM115

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._console.write(f"{_MARK}{nodeid}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.write(json.dumps(data) + "\n")


class OnHost:
    """The host's side: boots a VM when the first test for a kernel and machine is due."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reports: dict[str, list[pytest.TestReport]] = {}
        self._again: set[str] = set()

    def reports(self, item: pytest.Item) -> list[pytest.TestReport]:
        while item.nodeid not in self._reports:
            self._boot([other for other in item.session.items if self._shares(item, other)])
        return self._reports[item.nodeid]

    def _shares(self, item: pytest.Item, other: pytest.Item) -> bool:
        """Return whether another test without reports yet can run in the same VM."""
        return (
            INSIDE in other.path.parents
            and not other.get_closest_marker("skip")
            and other.nodeid not in self._reports
            and suite_of(other) == suite_of(item)
            and Needs.of(other).machine == Needs.of(item).machine
        )

    def _boot(self, items: list[pytest.Item]) -> None:
        suite = suite_of(items[0])
        self._reports |= {item.nodeid: [] for item in items}
        if reason := unavailable(suite):
            for item in items:
                path, line, _ = item.location
                where = (str(path), line or 0, reason)
                self._add(item, "setup", "skipped", where)
            return
        runs = CACHE / "tests"
        runs.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{items[0].path.stem}-{suite}-", dir=runs))
        done = _run_vm(suite, folder, items, self._config.getoption("minutes"))
        console = folder / "console.log"
        self._take_over(folder / "reports.jsonl")
        log = console.read_text(errors="replace") if console.exists() else ""
        self._blame_absence(items, log, done)
        items = [item for item in items if item.nodeid in self._reports]
        if items:
            self._blame_problems(items, log, console)
        bad = any(report.failed for item in items for report in self._reports[item.nodeid])
        if items and not bad:
            shutil.rmtree(folder)

    def _take_over(self, path: Path) -> None:
        for line in path.read_text().splitlines() if path.exists() else ():
            report = self._config.hook.pytest_report_from_serializable(
                config=self._config, data=json.loads(line)
            )
            if isinstance(report.longrepr, list):  # JSON knows no tuples, a skip's reason is one
                report.longrepr = tuple(report.longrepr)
            self._reports[report.nodeid].append(report)

    def _blame_problems(self, items: list[pytest.Item], log: str, console: Path) -> None:
        """Fail the test during which the kernel complained; the first, if before any."""
        by_id = {item.nodeid: item for item in items}
        parts = re.split(rf"{_MARK}(.*)", log)
        found = {items[0].nodeid: problems(parts[0])}
        for nodeid, part in zip(parts[1::2], parts[2::2], strict=True):
            found[nodeid] = found.get(nodeid, []) + problems(part)
        for nodeid, lines in found.items():
            if lines:
                text = "\n".join(["The VM's kernel complained:", *lines, f"See {console}"])
                self._add(by_id[nodeid], "teardown", "failed", text)

    def _blame_absence(
        self, items: list[pytest.Item], log: str, done: subprocess.CompletedProcess[str]
    ) -> None:
        """Fail the test during which the VM ended, and leave those behind it to another VM.

        Where no test was begun, pytest didn't start, and all fail. A test ends by itself after
        pytest's `timeout`; where the whole VM fell silent and its kernel complained of nothing,
        it is the emulation that hung, and the test gets a second VM, with a warning.
        """
        hung = done.returncode == boot.TIMEOUT and not problems(log)
        last = re.findall(rf"{_MARK}(.*)", log)[-1:]
        if hung:
            warnings.warn(f"A VM fell silent during {last or items[0].nodeid}", stacklevel=1)
        for item in items:
            if not any(report.when == "teardown" for report in self._reports[item.nodeid]):
                if last and item.nodeid not in last and not self._reports[item.nodeid]:
                    del self._reports[item.nodeid]
                    continue
                if hung and item.nodeid not in self._again:
                    self._again.add(item.nodeid)
                    del self._reports[item.nodeid]
                    continue
                when = "while this test ran" if item.nodeid in last else "before any test ran"
                text = f"The VM ended {when} (exit status {done.returncode}):\n{done.stdout}"
                self._add(item, "call", "failed", text)

    def _add(
        self, item: pytest.Item, when: str, outcome: str, longrepr: str | tuple[str, int, str]
    ) -> None:
        report = pytest.TestReport(item.nodeid, item.location, {}, outcome, longrepr, when)
        self._reports[item.nodeid].append(report)


def suite_of(item: pytest.Item) -> str:
    return item.callspec.params["VM"]


@functools.cache
def unavailable(suite: str) -> str | None:
    """Return why there is no such VM here; None when there is. Brings its kernel up to date."""
    if shutil.which(boot.HERE[0]) is None:
        return f"{boot.HERE[0]} is not installed; run scripts/setup --dev"
    if suite in kernels.DEBUG:
        if kernels.cached(suite) is None:
            return f"there is no kernel {suite}; run scripts/vm debug-kernel {suite}"
        _compile_for_vms(suite)
        return None
    done = subprocess.run([VM, "fetch", suite], stdin=subprocess.DEVNULL, capture_output=True)
    said = done.stderr.decode().strip()
    if done.returncode == LACKING:
        return said
    if done.returncode:
        pytest.exit(f"scripts/vm fetch {suite} failed: {said}", returncode=1)
    _compile_for_vms(suite)
    return None


def _compile_for_vms(suite: str) -> None:
    """Fill the caches of compiled objects, which VMs see: compiling there takes minutes."""
    from support import recorded_steps  # compiles the core when imported

    from mltcp_tools.kernel.native import objects

    recorded_steps.simulator()
    for source in (CHECKOUT / "bpf").glob("*.bpf.c"):
        objects.build_object(source.name.removesuffix(".bpf.c"), kernels.require(suite).image)
    folder = CHECKOUT / "tests" / "vm" / "programs"
    subprocess.run(["make", "-s", "-C", folder, f"OUT={CACHE / 'programs'}"], check=True)


def _run_vm(
    suite: str, folder: Path, items: Sequence[pytest.Item], minutes: float
) -> subprocess.CompletedProcess[str]:
    silence = LONG_S if any(item.get_closest_marker("full") for item in items) else SILENCE_S
    settings = {"MLTCP_GUEST": suite, REPORTS: str(folder / "reports.jsonl")}
    return subprocess.run(
        [
            *(VM, "run", suite, "--module", "--allow-log-problems"),
            *("--timeout=86400s", f"--silence={silence}s"),
            *Needs.of(items[0]).options(),
            *(f"--env={name}={value}" for name, value in settings.items()),
            *("--log", folder / "console.log", "--"),
            *(
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "no:cacheprovider",
                "--full",
                f"--minutes={minutes:g}",
                *(item.nodeid for item in items),
            ),
        ],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
