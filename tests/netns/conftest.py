# SPDX-License-Identifier: BSD-2-Clause
"""Says which backends can't be tested on this kernel, and leaves their tests out.

What is attached or loaded on this host would be in the way of most tests: that is said once, before
any runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from netns.backends_here import RUNNABLE, in_the_way, why_not
from netns.following import mark  # noqa: F401
from netns.own_programs import pins  # noqa: F401

from mltcp_tools.kernel.backends import BACKENDS

collect_ignore = [] if "kmod" in RUNNABLE else ["test_kmod_backend.py"]


def pytest_report_header() -> list[str]:
    return [f"no tests of {name}: {why_not(name)}" for name in BACKENDS if name not in RUNNABLE]


def pytest_collection_finish(session: pytest.Session) -> None:
    here = Path(__file__).parent
    if any(here in item.path.parents for item in session.items) and (why := in_the_way()):
        pytest.exit(f"tests/netns would change what is in use: {why}", returncode=4)
