#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Run the tests that show on which systems MLTCP works, and write the table of these."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from vms import kernels

CHECKOUT = Path(__file__).resolve().parents[1]
TABLE = CHECKOUT / "mltcp_tools/doctor/SUPPORTED.md"
RESULTS = CHECKOUT / ".cache/supported"
_DISTRIBUTIONS = "tests/vm/test_distributions.py"
_TRAFFIC = "test_backends.py::test_iterations_are_counted_to_the_byte"
TESTS = {
    **{
        f"{part}-{suite}": [f"{_DISTRIBUTIONS}::{test}[{suite}]"]
        for part, test in {
            "tools": "test_the_tools_load_ebpf_programs_there",
            "dkms": "test_dkms_builds_the_module_for_its_kernel_and_takes_it_off",
        }.items()
        for suite in ("bookworm", "trixie")
    },
    **{
        f"vm-{suite}": [f"tests/vm/inside/{_TRAFFIC}", "--vms", suite]
        for suite in (*kernels.SUITES, "noble")
    },
    "vm-jammy": [
        f"tests/vm/inside/{_TRAFFIC}[kmod-jammy]",
        *("tests/vm/inside/test_refusing.py", "--vms", "jammy"),
    ],
    "arm64": [f"{_DISTRIBUTIONS}::test_arm64_loads_attaches_and_runs_a_burst"],
    "here": [f"tests/netns/{_TRAFFIC}"],
}
"""Arguments of pytest for the tests that fill the table (fixture `supports`), by the names of what
they said."""
PARTS = {"ebpf": "eBPF", "module": "module", "tools": "tools"}

NOT_TRIED = (
    ("Enterprise Linux 9", "5.14"),
    ("Enterprise Linux 10", "6.12"),
    ("DGX OS 7", "6.8"),
    ("Talos", ""),
    ("Bottlerocket", ""),
)
"""Systems of operators that no test ran on, with their kernels."""

HEAD = """\
# Where it runs

Generated from test results by `scripts/supported.py`. **run**: it was loaded and carried traffic.
**built**: it was compiled for that kernel and installed. **refused**: `mltcp load` refuses that
kernel. **not tried**: run `mltcp doctor` there, which checks the kernel itself, not its version.
Ubuntu's kernels (22.04's 5.15, 24.04's 6.8) ran with Debian's programs.
Pages of 64 KiB weren't tried: Debian's kernels for arm64 have pages of 4 or 16 KiB.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "only",
        nargs="*",
        metavar="NAME",
        help=f"run these, and take the others' results as they are: {', '.join(TESTS)}",
    )
    wanted = parser.parse_args().only or list(TESTS)
    if unknown := set(wanted) - set(TESTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        (RESULTS / f"{name}.xml").unlink(missing_ok=True)
        new = RESULTS / f"{name}.new"
        command = [".venv/bin/python", "-m", "pytest", "--full", "-rfEs", f"--junit-xml={new}"]
        done = subprocess.run([*command, *TESTS[name]], cwd=CHECKOUT)
        if done.returncode:
            print(
                f"scripts/supported.py: {name} failed; the table stays as it was", file=sys.stderr
            )
            return 1
        new.rename(RESULTS / f"{name}.xml")
    there = [name for name in TESTS if (RESULTS / f"{name}.xml").exists()]
    suites = [ET.parse(RESULTS / f"{name}.xml").getroot()[0] for name in there]
    days = sorted({suite.attrib["timestamp"][:10] for suite in suites})
    text = f"{HEAD}{table(said(suites))}\nRun on {' and '.join(days)}: {', '.join(there)}.\n"
    TABLE.write_text(text)
    print(f"scripts/supported.py: wrote {TABLE.relative_to(CHECKOUT)}")
    return 0


def said(suites: Iterable[ET.Element]) -> Iterator[dict[str, str]]:
    """Yield what the tests said at their ends (the fixture `supports`)."""
    for suite in suites:
        for each in suite.iter("property"):
            if each.attrib["name"] == "supports":
                yield json.loads(each.attrib["value"])


def table(shown: Iterable[dict[str, str]]) -> str:
    """The rows, from what tests said."""
    rows: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for each in shown:
        row = rows[each.pop("system"), each.pop("kernel"), each.pop("python")]
        for part, how in each.items():
            if row.get(part) != "run":
                row[part] = how
    lines = [("system", "kernel", "Python", *PARTS.values()), ("---",) * (3 + len(PARTS))]
    for key, row in sorted(rows.items()):
        lines.append((*key, *(row.get(part, "not tried") for part in PARTS)))
    lines += [(system, kernel, "-", *(("not tried",) * len(PARTS))) for system, kernel in NOT_TRIED]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    sys.exit(main())
