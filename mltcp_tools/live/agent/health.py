# SPDX-License-Identifier: BSD-2-Clause
"""The work that MLTCP needs on this host, for gates of deployments and monitoring."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mltcp_tools.base.errors import HostError, MltcpError, UnknownError
from mltcp_tools.kernel.backends import AUTO, BACKENDS, checks, get_backend
from mltcp_tools.kernel.backends.pins import loaded_elsewhere
from mltcp_tools.kernel.host.leases import BackendUser, leases
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.removal import UNIT
from mltcp_tools.live.attach.replacement import orphaned
from mltcp_tools.live.observe.follower_state import killed_followers, read_overridden

NOTHING, STALE, ORPHANED, DEAD, OVERRIDDEN = 10, 11, 12, 13, 14
"""Exit codes of `mltcp status --check`."""


def problems(backend: str) -> list[tuple[int, str]]:
    """Return what is wrong, each with its exit code, in these codes' order; nothing where all is
    well.

    backend: a name, or AUTO for all. UnknownError where this process may not look.
    """
    found: list[tuple[int, str]] = []
    loaded, unknown = False, None
    for name in BACKENDS if backend == AUTO else (backend,):
        kernel = get_backend(name)
        try:
            status = kernel.status()
        except UnknownError as error:
            unknown = error
            continue
        except HostError as error:
            if kernel.is_present() or backend != AUTO:
                found.append((STALE, f"{name}: {error}"))
                loaded = True
            continue
        loaded = loaded or bool(status.loaded)
        foreign = status.details.get("elsewhere")
        if isinstance(foreign, list) and foreign:
            found.append((STALE, f"{name}: {loaded_elsewhere(foreign)}"))
        if other := checks.other_build(kernel, status):
            found.append((STALE, other))
        if old := orphaned(status):
            found.append(
                (
                    ORPHANED,
                    f"{name}: sockets or defaults still have {', '.join(old)} of an earlier load;"
                    " `mltcp load --ensure` gives them what is loaded.",
                )
            )
    if not loaded and unknown:
        raise unknown
    if not loaded:
        found.append((NOTHING, "Nothing is loaded: run `mltcp load`."))
    if not any(each.what == "mltcp agent" and _runs(each) for each in leases()):
        if _is_enabled():
            found.append((DEAD, f"{UNIT} is enabled, and no agent runs: systemctl status {UNIT}"))
        elif pids := killed_followers():
            found.append(
                (
                    DEAD,
                    f"Process {pids[0]}, which followed jobs, was killed: start the agent again, or"
                    " `mltcp detach --all`.",
                )
            )
    found += [(OVERRIDDEN, each) for each in read_overridden()]
    return sorted(found, key=lambda each: each[0])


def _runs(lease: BackendUser) -> bool:
    """Return whether the user is not about to end: it keeps its lease until its memory is freed."""
    try:
        return process(lease.pid).is_running()
    except MltcpError:
        return False


def _is_enabled() -> bool:
    """Return whether systemd is to run the agent."""
    if not Path("/run/systemd/system").exists():
        return False
    command = ["systemctl", "is-enabled", "--quiet", UNIT]
    return subprocess.run(command, capture_output=True).returncode == 0
