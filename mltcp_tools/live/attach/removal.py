# SPDX-License-Identifier: BSD-2-Clause
"""Takes all of MLTCP off this host, whoever put it there, and checks that nothing is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.base.units import counted
from mltcp_tools.kernel.backends import BACKENDS, get_backend, module, struct_ops
from mltcp_tools.kernel.backends.bpf_sockets import FIRST_PIN, forget_first
from mltcp_tools.kernel.backends.pins import PIN_ROOT
from mltcp_tools.kernel.congestion_controls import NAMES, base_of
from mltcp_tools.kernel.host import facts, namespaces
from mltcp_tools.kernel.host.cc_sockets import driven
from mltcp_tools.kernel.host.leases import LEASES, BackendUser, leases
from mltcp_tools.kernel.host.locks import RUN_DIR
from mltcp_tools.kernel.native.requirements import require_change
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.all_jobs import HeldSocket, every_socket
from mltcp_tools.live.attach.pidfd import Gone, put_back
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.state import STATE_DIR, StateFiles

Say = Callable[[str], None]

UNIT = "mltcp-agent.service"
_PATIENCE_S = 15.0
_BOOT_FILES = (
    *("/etc/sysctl.conf", "/etc/sysctl.d", "/run/sysctl.d", "/usr/lib/sysctl.d"),
    *("/etc/modules", "/etc/modules-load.d", "/usr/lib/modules-load.d"),
)


def take_off(say: Say, dry_run: bool = False, before: Callable[[], Sequence[str]] = list) -> None:
    """Stop users, set defaults back, switch sockets, unload, and remove what is recorded; in order.

    say: gets a sentence for each thing found or done. before: called once users have stopped, says
    what it removed besides. What couldn't be removed is named by the MltcpError at the end, raised
    after everything else was done. HostError before anything is done where privileges lack.
    """
    privileges.require_capabilities()
    missing = {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE"} - facts.effective_capabilities()
    if missing:
        raise HostError(
            f"Nothing was changed: this process lacks {' and '.join(sorted(missing))}; run it as"
            " root (sudo)."
        )
    if struct_ops.any_left() or PIN_ROOT.exists():
        require_change(PIN_ROOT.parent)  # or an error while nothing has changed
    if hidden := namespaces.hidden_processes():
        say(f"Processes that can't be inspected: {hidden}; it is unknown whether they use MLTCP.")
    if dry_run:
        for sentence in left_on_host() or ["Nothing of MLTCP is on this host."]:
            say(sentence)
        return
    problems: list[str] = []
    _stop_users(say)
    for step in (before, _default_steps, _detach_attached, _switch_sockets, _unload):
        try:
            for sentence in step():
                say(sentence)
        except MltcpError as error:
            problems.append(str(error))
    left = left_on_host()
    if not left and not problems:
        _remove_records()
        left = [str(each) for each in (STATE_DIR, LEASES) if each.exists()]
    for each in at_boot():
        say(f"Loads MLTCP again at the next boot unless you remove it: {each}.")
    if left or problems:
        raise MltcpError(" ".join(["Not everything could be removed.", *left, *problems]))
    say("Nothing of MLTCP is left on this host.")


def left_on_host() -> list[str]:
    """A sentence for each thing of MLTCP that is on this host now, as the kernel has it."""
    found = [f"{str(each).capitalize()} uses {each.backend}." for each in leases()]
    found += [
        f"{name} is the default of {each.name}."
        for each, name in namespaces.defaults()
        if name in NAMES
    ]
    seen = set()
    for held in every_socket(NAMES):
        seen.add(held.cookie)
        found.append(f"A socket of process {held.process.pid} runs {held.name} (fd {held.fd}).")
    found += [
        f"The {each} runs {each.congestion_control}."
        for each in driven(NAMES)
        if each.cookie not in seen
    ]
    found += [f"The kernel has the eBPF programs of {name}." for name in struct_ops.any_left()]
    if PIN_ROOT.exists():
        found.append(f"Maps are pinned in {PIN_ROOT}.")
    if os.path.exists(FIRST_PIN):
        found.append(f"What attached sockets ran before is pinned at {FIRST_PIN}.")
    if module.is_loaded():
        found.append(f"The module {module.NAME} is loaded.")
    with contextlib.suppress(FileNotFoundError):
        if states := StateFiles().read():
            found.append(f"{STATE_DIR} records {counted(len(states), 'job')}.")
    return found


def at_boot() -> list[str]:
    """Files that bring MLTCP back when the host boots, with the line; the unit, where enabled."""
    found = []
    for place in map(Path, _BOOT_FILES):
        for path in sorted(place.glob("*.conf")) if place.is_dir() else [place]:
            with contextlib.suppress(OSError):
                found += [
                    f"{path}: {line.strip()}"
                    for line in path.read_text(errors="replace").splitlines()
                    if "mltcp" in line and not line.lstrip().startswith(("#", ";"))
                ]
    if _systemctl("is-enabled", UNIT) == "enabled":
        found.append(f"{UNIT} is enabled (systemctl disable {UNIT})")
    return found


def _systemctl(*arguments: str) -> str:
    """Return the output of systemctl; nothing where there is no systemd."""
    if not (program := shutil.which("systemctl")) or not Path("/run/systemd/system").exists():
        return ""
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    return done.stdout.strip()


def _stop_users(say: Say) -> None:
    """End the processes that use a backend: politely, then not."""
    if _systemctl("is-active", UNIT) == "active":
        _systemctl("stop", UNIT)  # or systemd would start it anew
        say(f"Stopped {UNIT}.")
    told: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _PATIENCE_S
        for each in leases():
            _signal(each, number)
            if each.pid not in told:
                say(f"Stopped {each}.")
            told.add(each.pid)
        while leases() and time.monotonic() < deadline:
            time.sleep(0.05)


def _signal(lease: BackendUser, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(lease.pid, number)


def _default_steps() -> list[str]:
    """Give each network namespace whose default is one of ours that one's base, if allowed."""
    done = []
    for each, name in namespaces.defaults():
        if name in NAMES:
            now = namespaces.set_default(each, base_of(name))
            done.append(f"The default of {each.name} was {name} and is {now}.")
    return done


def _detach_attached() -> list[str]:
    """Put attached sockets back to what they ran first."""
    done = detach()
    restored = sum(each.outcome == "restored" for each in done)
    return [f"{restored} attached sockets run what they ran originally."] if restored else []


def _switch_sockets() -> list[str]:
    """Give what else runs one of ours its base: what programs or a default chose."""
    switched = 0
    deadline = time.monotonic() + _PATIENCE_S
    while found := [*every_socket(NAMES)]:
        switched += sum(map(_switch, found))
        if time.monotonic() > deadline:
            break
    return [f"{switched} other sockets now run their base algorithm."] if switched else []


def _switch(found: HeldSocket) -> bool:
    try:
        with found.borrow() as ours:
            try:
                put_back(ours, base_of(found.name))
            except MltcpError:  # such as a kernel without cubic
                put_back(ours, "reno")
    except (Gone, MltcpError, OSError):
        return False  # seen again, and told, when all is looked at
    return True


def _unload() -> list[str]:
    """Unload both backends, once connections that no process has any more are gone."""
    done = []
    problems = []
    for name in BACKENDS:
        backend = get_backend(name)
        if not backend.is_present():
            continue
        deadline = time.monotonic() + _PATIENCE_S
        while backend.is_present():
            try:
                backend.unload(force=True)
                done.append(f"Unloaded {name}.")
            except MltcpError as error:
                if time.monotonic() > deadline:
                    problems.append(str(error))
                    break
                time.sleep(0.2)
    forget_first()
    deadline = time.monotonic() + _PATIENCE_S
    while struct_ops.any_left() and time.monotonic() < deadline:
        time.sleep(0.1)
    if problems:
        raise MltcpError(" ".join(problems))
    return done


def _remove_records() -> None:
    """Remove what is kept in RUN_DIR; who waits for a lock there makes the folder again."""
    for each in RUN_DIR.iterdir() if RUN_DIR.is_dir() else ():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
