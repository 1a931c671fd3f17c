# SPDX-License-Identifier: BSD-2-Clause
"""Boots a kernel under QEMU on a layer over this machine's root and runs one command in it."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vms import build, log
from vms.common import CACHE, CHECKOUT, lock, missing, say
from vms.initramfs import initramfs
from vms.kernels import DEBUG, FOREIGN, Kernel

LOG_PROBLEM = 123
TIMEOUT = 124
PANIC = 125
QEMU_FAILED = 126
"""Exit statuses that are the runner's; every other is the command's."""

# Without ERMS and FSRM the kernel copies by moves, not by `rep movsb`, which the emulation runs
# byte by byte. QEMU 7.2 gets AVX2 wrong: numpy's sort gave false orders, or read where nothing is.
HERE = ("qemu-system-x86_64", "-machine", "q35", "-cpu", "max,-erms,-fsrm,-avx2")
ARM64 = ("qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72")
"""QEMU for a machine, always its own emulation: /dev/kvm exists where it doesn't work."""

LOADED = ("cffi", "click", "numpy", "numpy.libs", "yaml")
"""Packages that processes of the testbed load beside Python's own and this project's."""

KEPT = 20
"""Folders of failed runs that are kept, for their console logs."""


@dataclass(frozen=True)
class Options:
    """The settings of a boot. Times in seconds, memory in QEMU's notation.

    cpus: two where this process may use two, so that what races can race.
    icount: virtual time, one instruction a nanosecond; idle time is skipped. Slower, but free of
        the host's load. The clock leaps while the VM waits for a file of the host, by a few
        ticks each, so what measures must not: what an emulator of the testbed loads is in the
        VM's memory. One CPU only.
    silence: end the VM when the command writes nothing for so long.
    env: variables of the command. modules: folder to mount as /lib/modules, the kernel's own when
        None. log: where the console log is kept; without it, it is kept only after a failure.
    """

    icount: bool = False
    cpus: int = field(default_factory=lambda: min(2, len(os.sched_getaffinity(0))))
    mem: str = "2G"
    timeout: float = 300
    silence: float = math.inf
    append: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    modules: Path | None = None
    log: Path | None = None
    allow_log_problems: bool = False


def run(kernel: Kernel, command: Sequence[str], options: Options) -> int:
    """Boot, run the command in the current folder (if in the checkout), pass on what it writes.

    Returns its exit status, or one of those above with a sentence on stderr.
    """
    machine = ARM64 if kernel.suite in FOREIGN else HERE
    if shutil.which(machine[0]) is None:
        raise missing(machine[0])
    root = build.root_of(kernel.suite)
    with lock(kernel.suite, shared=True), _run_folder() as folder:
        settings = {
            "CHECKOUT": CHECKOUT,
            "RUN": folder,
            "MODULES": options.modules or kernel.modules,
            "CONFIG": kernel.config,
            "LEAKS": "1" if kernel.suite in DEBUG else "",
        }
        text = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
        in_memory = _put_in_memory(folder) if options.icount else []
        files = {
            "vm/settings": (0o644, text.encode()),
            "vm/command": (0o755, _script(command, options.env).encode()),
            "vm/memory": (0o644, "".join(f"{each}\n" for each in in_memory).encode()),
        }
        (folder / "initrd").write_bytes(initramfs(kernel, root, files))
        console = folder / "console.log"
        console.touch()
        returned = _start_and_wait([*machine, *_qemu(kernel, root, folder, options)], options)
        status = _judge(returned, folder, options)
        for name in ("initrd", "memory.tar"):
            (folder / name).unlink(missing_ok=True)
        if options.log:
            options.log.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(console, options.log)
            shutil.rmtree(folder)
        elif status in (LOG_PROBLEM, TIMEOUT, PANIC, QEMU_FAILED):
            (folder / "keep").touch()
    return status


@contextlib.contextmanager
def _run_folder() -> Iterator[Path]:
    """A folder of this run alone; it stays when it holds a file named keep."""
    runs = CACHE / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    failed = sorted(path.parent for path in runs.glob("*/keep"))
    for old in failed[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=runs))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if not (folder / "keep").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _script(command: Sequence[str], env: Mapping[str, str]) -> str:
    """A script that becomes the command, in the same folder as here if the VM has it."""
    here = Path.cwd()
    folder = here if here.is_relative_to(CHECKOUT) else CHECKOUT
    variables = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": os.path.expanduser("~root"),
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "MLTCP_IN_GUEST": "1",
        **env,
    }
    words = shlex.join(["env", "-i", *(f"{name}={value}" for name, value in variables.items())])
    return f"#!/bin/sh\ncd {shlex.quote(str(folder))} && exec {words} {shlex.join(command)}\n"


def _put_in_memory(folder: Path) -> list[Path]:
    """Write memory.tar for the VM, and return the folders that are in it."""
    packages = sorted((CHECKOUT / ".venv").glob("lib/python3*/site-packages"))
    candidates = [Path(sysconfig.get_path("stdlib")), CHECKOUT / "mltcp_tools"]
    candidates += [each / name for each in packages for name in LOADED]
    folders = [each for each in candidates if each.is_dir()]
    with tarfile.open(folder / "memory.tar", "w") as archive:
        for each in folders:
            archive.add(each, filter=lambda file: None if file.name.endswith("/tests") else file)
    return folders


def _qemu(kernel: Kernel, root: Path, folder: Path, options: Options) -> list[str]:
    """QEMU's options, but for the machine and the descriptors of the command's output."""
    speed = ["-accel", f"tcg,thread={'single' if options.icount else 'multi'}"]
    speed += ["-smp", str(1 if options.icount else options.cpus)]
    if options.icount:
        speed += ["-icount", "shift=0,sleep=off"]
    append = " ".join(
        (
            "console=ttyAMA0 console=ttyS0 loglevel=5 tsc=reliable",  # that which is there
            "no_timer_check",  # of which a busy host makes a panic
            "slab_nomerge panic=-1 oops=panic",  # a broken kernel ends the run at once
            "init_on_alloc=0",  # what isn't set holds what was there before
            # The emulation gets as much CPU as the host has to spare.
            "watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=120",
            # Without ticks an idle VM's clock leaps to the next timer, which may be far.
            "nohz=off" if options.icount else "",
            options.append,
        )
    )
    p9 = "security_model=none,multidevs=remap"
    return [
        *speed,
        *("-name", "mltcp-VM", "-m", options.mem, "-nodefaults", "-display", "none"),
        *("-no-reboot", "-net", "none"),
        *("-device", "virtio-rng-pci", "-serial", f"file:{folder}/console.log"),
        *("-fsdev", f"local,id=root,path={_escape(root)},readonly=on,{p9}"),
        *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
        *("-fsdev", f"local,id=checkout,path={_escape(CHECKOUT)},{p9}"),
        *("-device", "virtio-9p-pci,fsdev=checkout,mount_tag=checkout"),
        *("-kernel", str(kernel.image), "-initrd", str(folder / "initrd"), "-append", append),
    ]


def _escape(path: Path) -> str:
    """A path as QEMU's options want it: a comma doubled."""
    return str(path).replace(",", ",,")


def _start_and_wait(command: list[str], options: Options) -> int | None:
    """QEMU's exit status, None after a timeout; its streams go to ours as they come."""
    command = ["setpriv", "--pdeathsig", "KILL", *command, "-device", "virtio-serial-pci"]
    streams = {}
    ends = []
    for name, target in (("out", sys.stdout), ("err", sys.stderr)):
        reader, writer = os.pipe()
        streams[reader] = target.fileno()
        ends.append(writer)
        # Opened anew by QEMU, for which a pipe is a file like any other.
        path = f"/proc/self/fd/{writer}"
        command += ["-chardev", f"file,id={name},path={path},append=on"]
        command += ["-device", f"virtserialport,chardev={name},name={name}"]
    sys.stdout.flush()
    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=ends)
    for end in ends:
        os.close(end)
    deadline = time.monotonic() + options.timeout
    heard = time.monotonic()
    try:
        with selectors.DefaultSelector() as selector:
            for reader in streams:
                selector.register(reader, selectors.EVENT_READ)
            while selector.get_map():
                left = min(deadline, heard + options.silence) - time.monotonic()
                if left <= 0:
                    return None
                for key, _ in selector.select(left):
                    heard = time.monotonic()
                    data = os.read(key.fd, 65536)
                    if data:
                        _write(streams[key.fd], data)
                    else:
                        selector.unregister(key.fd)
        return qemu.wait(max(1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:
        for reader in streams:
            os.close(reader)
        if qemu.poll() is None:
            qemu.kill()
            qemu.wait()


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _judge(returned: int | None, folder: Path, options: Options) -> int:
    """The exit status of the run, from what QEMU returned and the VM left behind."""
    console = options.log or folder / "console.log"
    text = (folder / "console.log").read_text(errors="replace")
    found = log.problems(text)
    for line in found:
        say(f"in the kernel's log: {line}")
    if returned is None:
        ready = "didn't finish its command" if "vm: ready" in text else "didn't come up"
        limit = f"{options.timeout:g} s"
        if options.silence < math.inf:
            limit += f", or was silent for {options.silence:g} s"
        say(f"The VM {ready} within {limit}; see {console}")
        return TIMEOUT
    if returned < 0:
        say(f"QEMU was ended by {signal.Signals(-returned).name}; see {console}")
        return QEMU_FAILED
    if returned:
        say(f"QEMU failed ({returned}); see what it said above, and {console}")
        return QEMU_FAILED
    try:
        status = int((folder / "status").read_text())
    except FileNotFoundError:
        why = log.panic(text)
        what = f"panicked ({why})" if why else "went down before the command was done"
        say(f"The VM's kernel {what}; see {console}")
        return PANIC
    if found and not options.allow_log_problems:
        say(f"The command ended with {status}, but the kernel's log has problems; see {console}")
        return LOG_PROBLEM
    return status
