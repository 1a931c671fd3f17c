# SPDX-License-Identifier: BSD-2-Clause
"""eBPF on a kernel whose memory no program may read, and in a place where nothing says so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.test_attach import test_attach_and_detach as attach_and_detach
from netns.test_attach_kernel import test_no_process_is_touched  # noqa: F401
from vm.machines import HARDENED

from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.host import facts

pytestmark = [pytest.mark.bpf, HARDENED]

backend = backend_fixture(fresh_and_loaded, ["bpf"])


@pytest.fixture(autouse=True)
def locked_down(tmp_path: Path) -> Iterator[None]:
    """The kernel says so only where its securityfs is, which containers don't have."""
    subprocess.run(["mount", "-t", "securityfs", "securityfs", tmp_path], check=True)
    try:
        assert facts.lockdown(tmp_path / "lockdown") == "confidentiality"
        assert facts.lockdown() == "none"
        yield
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_connection_is_attached_and_gets_its_own_control_back(backend: Backend) -> None:
    attach_and_detach(backend, "127.0.0.1")
