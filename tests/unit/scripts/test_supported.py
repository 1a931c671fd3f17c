# SPDX-License-Identifier: BSD-2-Clause
"""The table of supported systems, from what tests say."""

from __future__ import annotations

import supported


def test_a_row_for_each_system_that_was_tried() -> None:
    debian = {"system": "Debian 12", "kernel": "6.1", "python": "3.11"}
    newer = debian | {"kernel": "6.12"}
    shown = [
        debian | {"module": "built"},
        debian | {"ebpf": "run", "tools": "run"},
        newer | {"module": "run"},
        newer | {"module": "built"},
    ]
    lines = supported.table(shown).splitlines()
    assert lines[:4] == [
        "| system | kernel | Python | eBPF | module | tools |",
        "| --- | --- | --- | --- | --- | --- |",
        "| Debian 12 | 6.1 | 3.11 | run | built | run |",
        "| Debian 12 | 6.12 | 3.11 | not tried | run | not tried |",
    ]
    assert "| Talos | | - | not tried | not tried | not tried |" in [
        " ".join(line.split()) for line in lines
    ]


def test_every_result_is_of_tests_that_are_there() -> None:
    for arguments in supported.TESTS.values():
        file, _, name = arguments[0].partition("::")
        path = supported.CHECKOUT / file
        assert path.exists()
        text = path.read_text()
        assert f"def {name.partition('[')[0]}(" in text or "import *" in text
    text = (supported.CHECKOUT / "tests/netns/test_backends.py").read_text()
    assert "def test_iterations_are_counted_to_the_byte(" in text
