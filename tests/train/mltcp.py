# SPDX-License-Identifier: BSD-2-Clause
"""The command `mltcp`, run as people run it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import Dumbbell

MLTCP = Path(sys.executable).with_name("mltcp")


def mltcp(*words: object) -> str:
    """Return what the command prints; it must succeed."""
    done = subprocess.run([MLTCP, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def mltcp_json(*words: object) -> Any:
    return json.loads(mltcp(*words, "--json"))


@contextlib.contextmanager
def loaded() -> Iterator[None]:
    """MLTCP in the kernel; afterwards nothing is attached, and it is gone."""
    for status in mltcp_json("status"):
        assert not status["loaded"], "MLTCP is loaded already; run `mltcp unload`"
    mltcp("load")
    try:
        yield
    finally:
        subprocess.run([MLTCP, "detach", "--all"], capture_output=True)
        mltcp("unload", "--force")


@contextlib.contextmanager
def bottleneck(
    senders: int, link: Link, sysctls: Mapping[str, str] | None = None
) -> Iterator[Dumbbell]:
    run_id = f"t{os.getpid()}{uuid.uuid4().hex[:4]}"
    with Dumbbell(run_id, link, sysctls or {}, senders, both_ways=True) as network:
        # A rank meets the others at an address of its own namespace, by way of the loopback.
        for namespace in (network.receiver, *network.senders):
            with inside(namespace), IPRoute() as ip:
                ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
        yield network
