# SPDX-License-Identifier: BSD-2-Clause
"""Kernels on which the eBPF programs work with a fault, or not at all."""

from __future__ import annotations

import pytest

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.native import requirements


@pytest.mark.parametrize(
    ("release", "build", "known"),
    [
        ("6.1.182", "#1 SMP", False),
        ("6.1.183", "#1 SMP", True),
        ("6.1.0-49-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.170-1 (2026-03-01)", False),
        ("6.8.0-200-generic", "#1 SMP", False),
        ("6.12.104+deb13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.104-1 (2026-10-01)", True),
        ("6.18.45", "#1 SMP", True),
        ("7.2.0-rc1", "#1 SMP", True),
        ("5.14.0-570.el9.x86_64", "#1 SMP", False),
        ("5.10.250", "#1 SMP", True),
        ("unknown", "", False),
    ],
)
def test_only_kernels_known_to_be_fixed_are_silent(release: str, build: str, known: bool) -> None:
    warning = requirements.may_miscount(release, build)
    assert ("CVE-2026-74714" in warning) is not known


def test_load_refuses_kernels_that_skip_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLTCP_ALLOW_SKIPPED_CALLS")
    monkeypatch.setattr(requirements, "skips_for_process_1", lambda btf: True)
    assert main(["load", "--backend", "bpf"]) == HostError.exit_code
    said = capsys.readouterr().err
    assert "process 1" in said
    assert "--backend kmod" in said
    assert "MLTCP_ALLOW_SKIPPED_CALLS=1" in said
