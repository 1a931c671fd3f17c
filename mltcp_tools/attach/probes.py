"""Probes on functions of libraries in running processes, through the distribution's bcc.

bcc compiles a program when it is used, against kernel headers. The programs here read no struct of
the kernel, so headers of any version serve: where the running kernel's aren't installed, those of a
kernel package of the distribution are taken.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import platform
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mltcp_tools import csources
from mltcp_tools.attach.libraries import Library, mapped_libraries
from mltcp_tools.errors import HostError, MltcpError

_HEADERS = "BCC_KERNEL_SOURCE"
"""The environment variable that bcc takes another folder of kernel headers from."""

_compiling = threading.Lock()

_File = tuple[str, int]
"""Device and inode."""


def compiled(program: str) -> Any:
    """A bcc.BPF of bpf/PROGRAM.bcc.c. HostError where it can't be compiled or loaded."""
    try:
        from bcc import BPF
    except ImportError:
        raise HostError(
            "Tracing processes needs bcc: apt install python3-bpfcc, and make the virtual"
            " environment with scripts/setup. (The bcc on PyPI is another project.)"
        ) from None
    source = csources.source_root() / "bpf" / f"{program}.bcc.c"
    # bcc reads the variable from the environment, and goes to another folder to compile.
    with _compiling, _headers_named():
        try:
            loaded = BPF(text=source.read_text())
        except Exception as error:  # bcc raises nothing more specific
            raise HostError(
                f"{source} could not be compiled or loaded ({error}); it needs root, and kernel"
                f" headers that fit the compiler in bcc ({_HEADERS} names others)."
            ) from error
    # bcc would do it when this process ends, with complaints; the kernel does it all the same.
    atexit.unregister(loaded.cleanup)
    return loaded


@contextlib.contextmanager
def _headers_named() -> Iterator[None]:
    folder = None if _HEADERS in os.environ else kernel_headers()
    if folder is None:
        yield
        return
    os.environ[_HEADERS] = str(folder)
    try:
        yield
    finally:
        del os.environ[_HEADERS]


def kernel_headers(
    release: str | None = None,
    modules: Path = Path("/lib/modules"),
    archive: Path = Path("/sys/kernel/kheaders.tar.xz"),
    sources: Path = Path("/usr/src"),
) -> Path | None:
    """A folder of kernel headers for bcc, None where bcc finds the running kernel's by itself.

    Debian splits the headers of a kernel in two trees, one per flavour and one that flavours share;
    bcc wants one, which is made of links in the folder of compiled objects. HostError where there
    are none.
    """
    release = release or platform.release()
    if (modules / release / "build").is_dir() or archive.exists():
        return None
    for flavour in sorted(sources.glob("linux-headers-*"), key=_version, reverse=True):
        if not (flavour / "include" / "generated" / "autoconf.h").is_file():
            continue
        if (flavour / "include" / "linux").is_dir():
            return flavour
        common = flavour.with_name(flavour.name.rpartition("-")[0] + "-common")
        if (common / "include" / "linux").is_dir():
            return _merged(flavour, common)
    raise HostError(
        f"There are no kernel headers, neither for the running kernel {release} nor any other in"
        f" {sources}; install them: apt install linux-headers-{_debian_architecture()}"
    )


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def _debian_architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _merged(flavour: Path, common: Path) -> Path:
    """Both trees' headers as one folder, made when missing."""
    architecture = {"x86_64": "x86", "aarch64": "arm64"}.get(platform.machine(), "")
    target = csources.cache_dir() / f"headers-{flavour.name}"
    if target.is_dir():
        return target
    scratch = Path(tempfile.mkdtemp(dir=target.parent))
    for folder in (Path("include"), Path("arch") / architecture / "include"):
        (scratch / folder).mkdir(parents=True)
        for tree in (flavour, common):
            for entry in (tree / folder).iterdir():
                link = scratch / folder / entry.name
                if not link.is_symlink():
                    link.symlink_to(entry)
    scratch.chmod(0o755)
    with contextlib.suppress(FileExistsError):  # another process was quicker
        scratch.rename(target)
    return target


_RETURN = "return "


class Probes:
    """A program's probes on libraries, in each process by itself.

    symbols: which function of the program runs when which symbol is called, or returns where
    `return ` is before its name. Symbols that a library lacks are left out. Returns must not be
    probed where C++ exceptions pass: the unwinder can't, and the process would die.
    """

    def __init__(self, program: str, library: re.Pattern[str], symbols: Mapping[str, str]) -> None:
        self._library = library
        self._symbols = dict(symbols)
        names = {symbol.removeprefix(_RETURN) for symbol in symbols}
        self._names = f"({'|'.join(map(re.escape, names))})$".encode()
        self._addresses: dict[_File, dict[str, int]] = {}
        self._events: dict[int, dict[_File, list[bytes]]] = {}
        self.bpf = compiled(program)

    @property
    def pids(self) -> frozenset[int]:
        """The processes with probes."""
        return frozenset(self._events)

    def attach(self, pid: int) -> set[str]:
        """Probe a process; return the program's functions that run there now.

        None do where it has no such library mapped.

        In a process that is probed already only libraries that it has loaded since are. Raises
        HostError where this user may not, MltcpError when the process is gone; then no probe is
        left in it.
        """
        found: set[str] = set()
        try:
            for library in mapped_libraries(pid, self._library):
                addresses = self._find(library)
                found |= {
                    function
                    for symbol, function in self._symbols.items()
                    if symbol.removeprefix(_RETURN) in addresses
                }
                file = library.device, library.inode
                if addresses and file not in self._events.get(pid, {}):
                    self._attach(pid, library, addresses)
        except MltcpError:
            self.detach(pid)
            raise
        return found

    def _find(self, library: Library) -> dict[str, int]:
        """Where in the file the symbols are; looked up once per file."""
        file = library.device, library.inode
        if file not in self._addresses:
            functions = self.bpf.get_user_functions_and_addresses(
                os.fsencode(library.file), self._names
            )
            self._addresses[file] = {os.fsdecode(name): address for name, address in functions}
        return self._addresses[file]

    def _attach(self, pid: int, library: Library, addresses: Mapping[str, int]) -> None:
        file = library.device, library.inode
        events = self._events.setdefault(pid, {}).setdefault(file, [])
        for symbol, function in self._symbols.items():
            name = symbol.removeprefix(_RETURN)
            if name not in addresses:
                continue
            returns = symbol.startswith(_RETURN)
            attach = self.bpf.attach_uretprobe if returns else self.bpf.attach_uprobe
            before = set(self.bpf.uprobe_fds)
            try:
                attach(
                    name=os.fsencode(library.file),
                    addr=addresses[name],
                    fn_name=function.encode(),
                    pid=pid,
                )
            except Exception as error:  # bcc raises nothing more specific
                raise HostError(
                    f"{name} in {library.path} of process {pid} can't be probed ({error}); the"
                    " kernel needs CONFIG_UPROBE_EVENTS, and this process CAP_SYS_ADMIN."
                ) from error
            events += set(self.bpf.uprobe_fds) - before

    def detach(self, pid: int) -> None:
        """Take the process's probes off; none there is no error."""
        from bcc import libbcc

        for event in itertools.chain(*self._events.pop(pid, {}).values()):
            # Not bcc's detach_uprobe(): that asks tracefs, which knows nothing of such probes and
            # may not be mounted. They end with their descriptor.
            libbcc.lib.bpf_close_perf_event_fd(self.bpf.uprobe_fds[event])
            self.bpf._del_uprobe_fd(event)

    def close(self) -> None:
        """Take all probes off and unload the program."""
        for pid in self.pids:
            self.detach(pid)
        self.bpf.cleanup()
