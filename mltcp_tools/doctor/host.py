# SPDX-License-Identifier: BSD-2-Clause
"""Facts read off a host: files under /proc and /sys, tools, capabilities, kernel options.

Everything here only looks. `HostFacts(root)` reads files below `root`, so that tests can hand it a
made-up tree; such a host is not live: it runs no command and makes no system call.
"""

from __future__ import annotations

import ctypes
import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mltcp_tools.kernel.host.descriptors import pidfd_getfd
from mltcp_tools.kernel.host.facts import CAPABILITIES

_ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # tools live here that a plain user's PATH lacks


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a command: its exit code and both outputs as one text."""

    code: int
    output: str


class HostFacts:
    """The host whose files are below `root`; live if that is the machine's own root folder."""

    def __init__(self, root: str | Path = "/") -> None:
        self.root = Path(root)
        self.live = self.root == Path("/")

    def path(self, name: str) -> Path:
        """The place of the host's file `name`, an absolute path."""
        return self.root / name.lstrip("/")

    def exists(self, name: str) -> bool:
        """Return whether the file is there, as far as this user can see."""
        try:
            return self.path(name).exists()
        except OSError:
            return False

    def read(self, name: str) -> str | None:
        """The file's text without surrounding blanks; None if it is not there or not readable."""
        try:
            return self.path(name).read_text(errors="replace").strip()
        except OSError:
            return None

    def words(self, name: str) -> list[str]:
        """The file's words; empty if it can't be read."""
        return (self.read(name) or "").split()

    def which(self, tool: str) -> str | None:
        """Return the path of the command, found in the folders for administrators too; None if
        nowhere.
        """
        if not self.live:
            return None
        return shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:{_ADMIN_PATH}")

    def run(self, command: Sequence[str], timeout_s: float = 20) -> CheckResult | None:
        """Run a command that changes nothing; None if it is not there or does not end in time."""
        program = self.which(command[0])
        if program is None:
            return None
        try:
            done = subprocess.run(
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return CheckResult(done.returncode, done.stdout.decode(errors="replace").strip())

    @cached_property
    def kernel(self) -> str:
        """The running kernel's release, as `uname -r` gives it."""
        return self.read("/proc/sys/kernel/osrelease") or "unknown"

    @cached_property
    def config(self) -> dict[str, str]:
        """The kernel's build options, without CONFIG_; one not set is absent; empty if unknown."""
        text = self.read(f"/boot/config-{self.kernel}")
        if text is None:
            try:
                text = gzip.decompress(self.path("/proc/config.gz").read_bytes()).decode()
            except (OSError, EOFError, ValueError):
                return {}
        return dict(re.findall(r"^CONFIG_(\w+)=(.*)$", text, re.MULTILINE))

    @cached_property
    def capabilities(self) -> set[str]:
        """Return those of CAPABILITIES that this process has and that count for the whole host."""
        status = self.read("/proc/self/status") or ""
        match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
        mask = int(match.group(1), 16) if match and not self.in_user_namespace else 0
        return {name for name, bit in CAPABILITIES.items() if mask >> bit & 1}

    @cached_property
    def in_user_namespace(self) -> bool:
        """Return whether this process lives in a user namespace of its own (a rootless
        container).
        """
        return self.words("/proc/self/uid_map") not in ([], ["0", "0", "4294967295"])

    def unloaded_module(self, name: str) -> bool:
        """Return whether `name` is a kernel module that is on disk and waits to be loaded on
        first use.
        """
        on_disk = self.read(f"/lib/modules/{self.kernel}/modules.dep") or ""
        return f"/{name}.ko" in on_disk and not self.exists(f"/sys/module/{name}")

    @cached_property
    def mounts(self) -> dict[str, str]:
        """Mount point -> file system type; the last mount on a point counts."""
        lines = (self.read("/proc/self/mounts") or "").splitlines()
        return {fields[1]: fields[2] for fields in map(str.split, lines) if len(fields) > 2}

    @cached_property
    def lockdown(self) -> str | None:
        """none, integrity or confidentiality; None if the kernel doesn't say."""
        match = re.search(r"\[(\w+)\]", self.read("/sys/kernel/security/lockdown") or "")
        return match.group(1) if match else None

    @cached_property
    def secure_boot(self) -> bool:
        """Return whether the firmware checks signatures of what it boots."""
        variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
        try:
            return self.path(variable).read_bytes()[-1:] == b"\x01"
        except OSError:
            return False

    def libbpf_version(self) -> tuple[int, int] | None:
        """The version of libbpf.so.1 as (major, minor); None if it can't be loaded."""
        if not self.live:
            return None
        try:
            library = ctypes.CDLL("libbpf.so.1")
            return library.libbpf_major_version(), library.libbpf_minor_version()
        except (OSError, AttributeError):
            return None

    def pidfd_getfd_error(self) -> OSError | None:
        """Copy a descriptor of this very process through pidfd_getfd; the error if that fails."""
        read_end, write_end = os.pipe()
        try:
            pidfd = os.pidfd_open(os.getpid())
            try:
                os.close(pidfd_getfd(pidfd, read_end))
            finally:
                os.close(pidfd)
        except OSError as error:
            return error
        finally:
            os.close(read_end)
            os.close(write_end)
        return None

    def python_says(self, program: str) -> CheckResult | None:
        """Run a short Python program with this interpreter, so that its imports stay apart."""
        return self.run([sys.executable, "-c", program])
