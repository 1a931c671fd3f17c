"""Says which backends can't be tested on this kernel, and leaves their tests out."""

from __future__ import annotations

from netns.backends_here import RUNNABLE, why_not

from mltcp_tools.backends import BACKENDS

collect_ignore = [] if "kmod" in RUNNABLE else ["test_kmod_backend.py"]


def pytest_report_header() -> list[str]:
    return [f"no tests of {name}: {why_not(name)}" for name in BACKENDS if name not in RUNNABLE]
