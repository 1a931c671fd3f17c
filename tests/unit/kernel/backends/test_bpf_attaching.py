# SPDX-License-Identifier: BSD-2-Clause
"""Python's copies of the structs of bpf/*.bpf.h against the headers as the compiler sees them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from mltcp_tools.collectives.programs import COUNTERS
from mltcp_tools.kernel.backends import bpf_catch, bpf_sockets
from mltcp_tools.kernel.backends.catch import CHOICES, Catch
from mltcp_tools.kernel.backends.pins import Home
from mltcp_tools.kernel.native.csources import source_root
from mltcp_tools.lab.testbed.treatments import rates
from mltcp_tools.live.priorities import coflows, maps

STRUCTS = {
    "wish": bpf_sockets.WISH,
    "found": bpf_sockets.FOUND,
    "attached": bpf_sockets.ATTACHED,
    "held": bpf_sockets.HELD,
    "rule": bpf_catch.RULE,
    "priority_job": maps.JOB,
    "priority_burst": maps.BURST,
}
OFFSETS = {
    "found": {"error": 8, "was": 16, "now": 32},
    "attached": {
        "netns": 8,
        "local_addr": 16,
        "local_port": 48,
        "state": 52,
        "tag": 56,
        "first": 72,
        "now": 88,
    },
    "rule": {"name": 16, "choices": 32, "lowest_port": 32 + 32 * CHOICES},
    "wish": {"expected": 8, "name": 24, "tag": 40},
    "priority_job": {"bytes": 0, "gap_ns": 8, "ports": 16},
    "priority_burst": {"began_ns": 8, "last_ns": 16, "before": 24, "number": 32, "active": 36},
}


def test_layouts(tmp_path: Path) -> None:
    lines = ["#include <linux/types.h>", "#include <stddef.h>"]
    lines += ['#include "attach.bpf.h"', '#include "priority.bpf.h"']
    lines.append(f'_Static_assert(MLTCP_PRIORITY_LEVELS == {coflows.LEVELS}, "levels");')
    for name, layout in STRUCTS.items():
        lines.append(f'_Static_assert(sizeof(struct mltcp_{name}) == {layout.size}, "{name}");')
        for field, offset in OFFSETS.get(name, {}).items():
            at = f"offsetof(struct mltcp_{name}, {field})"
            lines.append(f'_Static_assert({at} == {offset}, "{name}.{field}");')
    source = tmp_path / "layouts.c"
    source.write_text("\n".join([*lines, ""]))
    command = ["gcc", "-fsyntax-only", "-I", str(source_root() / "bpf"), str(source)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "first", "names"),
    [
        (
            "aggregate.bpf.h",
            "enum counter {",
            [f"COUNT_{name.removeprefix('wrong_').upper()}" for name in COUNTERS] + ["COUNTERS"],
        ),
        (
            "mltcp_feedback.bpf.h",
            "enum mltcp_feedback_count {",
            [f"MLTCP_FEEDBACK_{name.upper()}" for name in [*rates.COUNTS, "counts"]],
        ),
    ],
)
def test_counters_are_read_in_the_order_of_their_enum(
    file: str, first: str, names: list[str]
) -> None:
    text = (source_root() / "bpf" / file).read_text()
    body = text.partition(first)[2].partition("};")[0]
    numbered = re.sub(r"/\*.*?\*/", "", body).split(",")
    assert [each.strip() for each in numbered if each.strip()] == names


def test_a_rule_that_does_not_fit_is_refused() -> None:
    home = Home(1, 2)
    assert len(bpf_catch.packed(Catch(1, "mltcp", ports=(1, 2, 3, 4)), home)) == bpf_catch.RULE.size
    with pytest.raises(ValueError, match="at most"):
        Catch(1, "mltcp", ports=(1, 2, 3, 4, 5))
    with pytest.raises(ValueError, match="at most"):
        Catch(1, choices={str(n): "mltcp" for n in range(17)})
