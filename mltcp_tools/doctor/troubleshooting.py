# SPDX-License-Identifier: BSD-2-Clause
"""TROUBLESHOOTING.md: what `mltcp doctor` can find, with the fix, as a page to read.

    python -m mltcp_tools.doctor.troubleshooting >mltcp_tools/doctor/TROUBLESHOOTING.md

The findings are the doctor's own, of made-up hosts that lack things; a test fails when the page is
stale.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from mltcp_tools.doctor import Host, diagnose
from mltcp_tools.doctor.report import PURPOSES

# Files below the root of each made-up host; each host lacks what the others have.
_RELEASE = {"proc/sys/kernel/osrelease": "RELEASE"}
HOSTS: tuple[Mapping[str, str], ...] = (
    _RELEASE | {"proc/modules": "", "lib/modules/RELEASE/modules.order": ""},
    _RELEASE,
    _RELEASE | {"proc/sys/kernel/yama/ptrace_scope": "3"},
    _RELEASE
    | {
        "sys/kernel/security/lockdown": "none integrity [confidentiality]",
        "proc/modules": "",
        "sys/firmware/efi/systab": "",
    },
    {"proc/sys/kernel/osrelease": "5.4.0"},
    _RELEASE | {"sys/kernel/btf/vmlinux": "names of functions"},
    _RELEASE | {"sys/kernel/btf/vmlinux": "\0__bpf_prog_enter_recur\0init_owned\0"},
)

_HEAD = """\
# Troubleshooting

`mltcp doctor` looks at a host and says what stands in the way, with the fix; `--json` for scripts.
It changes nothing. This page lists its findings for hosts that lack something. An error of any
other command is one sentence: what, where, what to do. `MLTCP_DEBUG=1` shows its traceback."""


def render() -> str:
    """The page, as Markdown."""
    found: dict[str, dict[str, tuple[str, str]]] = {purpose: {} for purpose in PURPOSES}
    for files in HOSTS:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content + "\n", encoding="utf-8")
            host = Host(folder)
            for purpose, checks in diagnose(host).checks.items():
                for check in checks:
                    # What differs by nothing but the kernel's release is one finding.
                    what = check.found.replace(f"for {host.kernel}", "for this kernel")
                    what = what.replace(f"modules/{host.kernel}", "modules/RELEASE")
                    if check.fix:
                        found[purpose].setdefault(what, (check.name, check.fix))
    parts = [_HEAD]
    for purpose, title in PURPOSES.items():
        rows = [f"| {name} | {what} | {fix} |" for what, (name, fix) in found[purpose].items()]
        head = ["| finding | what it says | what to do |", "| --- | --- | --- |"]
        parts.append("\n".join([f"## {title}", "", *head, *rows]))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(render(), end="")
