# SPDX-License-Identifier: BSD-2-Clause
"""The VMs that several files of tests/vm/inside share, each of which costs half a minute."""

from __future__ import annotations

import pytest

VIRTUAL_TIME = pytest.mark.VM(icount=True, append="possible_cpus=256")
"""In virtual time, with one CPU of many that its host may have."""

HARDENED = pytest.mark.VM(append="lockdown=confidentiality preempt=full")
"""With a kernel that lets nobody read its memory, and takes the CPU away from itself."""
