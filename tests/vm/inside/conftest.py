# SPDX-License-Identifier: BSD-2-Clause
"""Every test of this folder runs in a VM, once per kernel, as root, with the module installed.

Its fixtures and body are never run on the host. The marker `VM` says what a file's VM needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.following import mark  # noqa: F401
from vm.bridge import GUEST, InVm, OnHost, suites
from vm.hostile import Client, module_loaded

HERE = Path(__file__).parent
_HOST = pytest.StashKey[OnHost]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "VM(cpus, mem, icount, append): what its VM needs")
    if GUEST:
        config.pluginmanager.register(InVm(config))
    else:
        config.stash[_HOST] = OnHost(config)


@pytest.fixture(autouse=True)
def VM() -> str:
    """The suite of the VM's kernel; given by pytest_generate_tests."""
    raise NotImplementedError


@pytest.hookimpl(trylast=True)  # last, so that ids end in it, whatever loads this file when
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("VM", suites(metafunc.config))


def pytest_itemcollected(item: pytest.Item) -> None:
    if not GUEST and HERE in item.path.parents:
        # The first test of a VM waits for all of them here; the limit is the VM's.
        item.add_marker(pytest.mark.timeout(0))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("bpf") and not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("this VM's kernel has no BTF, so no congestion control in BPF")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    # pytest asks this of the tests of other folders, too.
    if GUEST or HERE not in item.path.parents or item.get_closest_marker("skip"):
        return None
    reports = item.config.stash[_HOST].reports(item)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture
def module_leaves_nothing() -> Iterator[None]:
    """The kernel module is loaded during the test, and leaves nothing in the kernel."""
    with module_loaded():
        yield


@pytest.fixture
def client(module_leaves_nothing: None) -> Iterator[Client]:
    """The module's interface."""
    with Client() as found:
        yield found
