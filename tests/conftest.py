# SPDX-License-Identifier: BSD-2-Clause
"""Rules of all tests: markers by folder, and the rule that BPF tests may not hide.

A test in tests/FOLDER gets the marker FOLDER. Tests marked `bpf` may be skipped only where the
kernel can't run congestion controls in BPF or nobody is root; elsewhere such a skip is a failure.
"""

from __future__ import annotations

import json
import os
import platform
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says something of what else the machine does, nothing of the code.
settings.register_profile("mltcp", deadline=None)
settings.load_profile("mltcp")

os.environ["MLTCP_ALLOW_SKIPPED_CALLS"] = "1"  # `mltcp load` refuses some kernels otherwise

FOLDERS = {"unit", "netns", "vm", "train", "web"}


def can_run_struct_ops() -> bool:
    """Return whether this process may load BPF and the kernel has the type information for it."""
    return os.geteuid() == 0 and Path("/sys/kernel/btf/vmlinux").exists()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="tests/vm on every kernel, and the tests marked full"
    )
    parser.addoption(
        "--minutes", type=float, default=5, help="length of the soak in tests/vm, with --full"
    )
    parser.addoption(
        "--vms", metavar="SUITE,…", help="tests/vm on these kernels (scripts/vm --help)"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it puts in the background with SIGINT ignored, and every process started
    # from there inherits that: tests that interrupt a process would wait for it in vain.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("full"):
        long = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    tests = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(tests).parts[0]
        if folder in FOLDERS:
            item.add_marker(folder)
        if item.get_closest_marker("full") or folder in ("train", "bench"):
            item.add_marker(pytest.mark.timeout(4 * 3600))
        if folder in ("netns", "vm", "train") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason=f"tests/{folder} needs root"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and item.get_closest_marker("bpf") and can_run_struct_ops():
        report.outcome = "failed"
        report.longrepr = (
            "This BPF test was skipped although this kernel can run congestion controls in BPF"
            f" and we are root, so something is broken: {report.longrepr}"
        )
    return report


@pytest.fixture
def supports(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Says at a test's end what it has shown for the table of supported systems, which
    scripts/supported.py makes: by name what was `run` or `built`: `ebpf`, `module`, `tools`; where
    that wasn't on this system also `system`, `kernel` and `python`.
    """
    release = platform.freedesktop_os_release()
    name = f"{release['ID'].capitalize()} {release.get('VERSION_ID', '')}".strip()
    foreign = platform.release().endswith("-generic") and release["ID"] != "ubuntu"
    here = {
        "system": f"{name}, Ubuntu's kernel" if foreign else name,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }

    def say(**shown: str) -> None:
        record_property("supports", json.dumps(here | shown))

    return say
