# SPDX-License-Identifier: BSD-2-Clause
"""The shape of the findings, and how they are shown."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal

from mltcp_tools.base.columns import Meaning, Style, plain

SCHEMA = "mltcp-doctor/1"

# What each purpose is called in the report.
PURPOSES = {
    "bpf": "BPF backend",
    "testbed": "Testbed",
    "kmod": "Kernel module backend",
    "attach": "Attaching to running jobs",
    "peer": "The other host",
}
BACKENDS = ("bpf", "kmod")  # one of these purposes will do

State = Literal["ok", "missing", "warning", "unknown"]
_MEANINGS: dict[State, Meaning] = {
    "ok": "good",
    "missing": "bad",
    "warning": "warning",
    "unknown": "quiet",
}


@dataclass(frozen=True)
class Check:
    """One finding: `missing` stands in the way, a `warning` limits, `unknown` could not be seen."""

    name: str
    state: State
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The findings of each purpose, in the order to report them."""

    host: str
    checks: dict[str, list[Check]]

    def lacking(self, purpose: str) -> list[str]:
        """The names of what stands in the way of `purpose`."""
        return [check.name for check in self.checks[purpose] if check.state == "missing"]

    @property
    def ready(self) -> bool:
        """Return whether nothing known stands in the way of one of the backends, and of a peer.
        The testbed is for experiments: jobs run mltcp without it.
        """
        lacking = {purpose for purpose in self.checks if self.lacking(purpose)}
        return "peer" not in lacking and not {*BACKENDS} <= lacking

    def as_json(self) -> dict[str, Any]:
        """The document of `mltcp doctor --json`."""
        return {
            "schema": SCHEMA,
            "kernel": self.host,
            "ready": {purpose: not self.lacking(purpose) for purpose in self.checks},
            "checks": [
                {"purpose": purpose, **asdict(check)}
                for purpose, checks in self.checks.items()
                for check in checks
            ],
        }

    def as_text(self, width: int, style: Style = plain) -> str:
        """The table for people, `width` columns wide."""
        lines = []
        for purpose, checks in self.checks.items():
            lacking = self.lacking(purpose)
            verdict = f"lacks {', '.join(lacking)}" if lacking else "ready"
            lines.append(f"{PURPOSES[purpose]}: {style(verdict, 'bad' if lacking else 'good')}")
            for check in checks:
                shown = style(check.state, _MEANINGS[check.state])
                first, *rest = _wrap(f"  {check.state:<8} {check.name:<20} ", check.found, width)
                lines += [first.replace(check.state, shown, 1), *rest]
                if check.fix:
                    lines += _wrap(f"  {'':<8} {'':<20} -> ", check.fix, width)
            lines.append("")
        return "\n".join(lines[:-1])


def install(package: str) -> str:
    """The fix for a tool or library that is not there, named as Debian's package."""
    return f"Install it; on Debian and Ubuntu: apt-get install {package}"


def as_fix(end: str) -> str:
    """Return what an error's sentence ends in, as the fix of a finding."""
    return f"{end[:1].upper()}{end[1:]}"


def needed(name: str, there: bool, found: str, lacking: str, fix: str) -> Check:
    """A finding that stands in the way unless `there` is true."""
    return Check(name, "ok", found) if there else Check(name, "missing", lacking, fix)


def _wrap(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        head + text,
        max(width, len(head) + 20),
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
