# SPDX-License-Identifier: BSD-2-Clause
"""A kernel's mistakes, as its console tells them."""

from __future__ import annotations

import re

PROBLEM = re.compile(
    r"""\bBUG\b | \bWARNING\b | \bINFO:\ | \bOops\b | Kernel\ panic | general\ protection\ fault
    | possible\ circular\ locking | \bKASAN\b | \bUBSAN\b | refcount_t
    | kmemleak:.*(new\ suspected|disabled) | unreferenced\ object | unregister_netdevice:\ waiting
    | ref_tracker | list_(add|del)\ corruption | page\ allocation\ failure | bad:\ scheduling
    | detected\ stall | still\ has\ locks | stack-protector""",
    re.VERBOSE,
)
"""Marks a line that means something is broken."""

PANIC = re.compile(r"Kernel panic - not syncing: (.*)")


def problems(log: str) -> list[str]:
    """The lines of a console log that mean something is broken."""
    return [line for line in log.splitlines() if PROBLEM.search(line)]


def panic(log: str) -> str | None:
    """Return the message of the kernel's panic, None when it did not."""
    match = PANIC.search(log)
    return match[1].strip() if match else None
