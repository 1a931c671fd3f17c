# SPDX-License-Identifier: BSD-2-Clause
"""Debian kernels for VMs: fetched by apt into the cache, unpacked, never installed."""

from __future__ import annotations

import hashlib
import json
import lzma
import platform
import re
import shutil
import struct
import subprocess
import tempfile
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vms.common import CACHE, LACKING, USAGE, VmError, call, lock, missing, say

SUITES = {
    "bookworm": "6.1",
    "bookworm-backports": "6.12",
    "trixie-backports": "7.x",
}
"""Debian suites whose kernel the tests in VMs run on, and the kernel series each has."""

UBUNTU = {"jammy": "5.15", "noble": "6.8"}
"""Suites of Ubuntu, likewise."""

FOREIGN = {"bookworm-arm64": "6.1 for arm64"}
"""Kernels of another machine, which QEMU emulates all the same, on a root of that machine."""

FETCHED = {**SUITES, "trixie": "6.12", **UBUNTU, **FOREIGN}
"""All whose kernel can be fetched."""

DEBUG = {"debug": "bookworm-backports", "debug-7": "trixie-backports"}
"""Names of the kernels that `scripts/vm debug-kernel` builds, and whose sources they are of."""

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHIVE = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
UBUNTU_ARCHIVE = "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYS = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2021.03.26_all.deb"
UBUNTU_KEYS_SHA256 = "0d0e7ed6b112f5d03eabf3c7eb01ebdacf9c57714b279e90495cfc58c8c4520f"
"""The package of the keys that Ubuntu signs its archive with, which Debian 12 lacks."""

# What a metapackage leads to: the image and headers, also in the pieces newer kernels come in.
PARTS = re.compile(r"linux-(image|headers|kbuild|compiler|binary|modules|base-\d)[a-z0-9.+-]*$")
VERSION = re.compile(r"linux-image-(\d[^_]*-(?:amd64|arm64|generic))$")

STAMP = "fetched.json"


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel of the cache. `version` is what uname -r says in a VM."""

    suite: str
    version: str
    folder: Path

    @property
    def modules(self) -> Path:
        return self.folder / "lib" / "modules"

    @property
    def build(self) -> Path:
        """Return the KDIR of an out-of-tree build."""
        return self.modules / self.version / "build"

    @property
    def image(self) -> Path:
        """The uncompressed kernel; QEMU starts it without unpacking, through its PVH entry."""
        return self.folder / "vmlinux"

    @property
    def config(self) -> Path:
        return self.folder / "boot" / f"config-{self.version}"


def cached(suite: str) -> Kernel | None:
    """The kernel of that suite as the cache has it."""
    folder = CACHE / suite
    try:
        stamp = json.loads((folder / STAMP).read_text())
    except FileNotFoundError:
        return None
    kernel = Kernel(suite, stamp["version"], folder)
    if stamp["folder"] != str(folder):  # the checkout was moved
        _relocate(kernel)
        (folder / STAMP).write_text(json.dumps({**stamp, "folder": str(folder)}))
    return kernel


def require(suite: str) -> Kernel:
    """The kernel as the cache has it, fetched first when it has none."""
    if suite not in (*FETCHED, *DEBUG):
        raise VmError(
            f"{suite!r} is not a kernel; there are: {', '.join((*FETCHED, *DEBUG))}.", USAGE
        )
    found = cached(suite)
    if found is None and suite in DEBUG:
        raise VmError(
            f"There is no kernel {suite} yet; run: scripts/vm debug-kernel {suite}", LACKING
        )
    return found or fetch(suite)


def fetch(suite: str) -> Kernel:
    """The newest kernel of a suite, downloaded where the cache has an older one or none.

    Without network the cached one serves; VmError (3) where there is none.
    """
    if suite not in FETCHED:
        raise VmError(f"{suite!r} is not a suite; there are: {', '.join(FETCHED)}.", USAGE)
    if platform.machine() != "x86_64":
        raise VmError(f"VMs are x86_64 machines; this is {platform.machine()}.", LACKING)
    with lock(f"fetch-{suite}"):
        old = cached(suite)
        machine = "arm64" if suite in FOREIGN else "amd64"
        apt = Apt(f"apt-{suite}", suite_sources(suite), machine)
        try:
            apt.update()
        except VmError as error:
            if old is None:
                raise VmError(
                    f"The kernel of {suite} isn't cached and can't be fetched: {error}", LACKING
                ) from None
            say(f"{error} Using the cached {suite} kernel, {old.version}.")
            return old
        names = _packages(apt, "generic" if suite in UBUNTU else machine)
        files = apt.files(names)
        if old and json.loads((old.folder / STAMP).read_text())["files"] == files:
            return old
        version = next(match[1] for match in map(VERSION.match, names) if match)
        say(f"fetching {suite}: {version}")
        new = CACHE / f".new-{suite}"
        shutil.rmtree(new, ignore_errors=True)
        try:
            apt.download(names, new / "debs")
            for package in sorted((new / "debs").iterdir()):
                call(["dpkg", "-x", package, new])
            shutil.rmtree(new / "debs")
            _arrange(new, version)
            kernel = Kernel(suite, version, CACHE / suite)
            _relocate(Kernel(suite, version, new), kernel.folder)
            call(["depmod", "-b", new, version])
            stamp = {"version": version, "files": files, "folder": str(kernel.folder)}
            (new / STAMP).write_text(json.dumps(stamp, indent=1))
            with lock(suite):  # waits for VMs that run the old one
                shutil.rmtree(kernel.folder, ignore_errors=True)
                new.rename(kernel.folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return kernel


def suite_sources(suite: str) -> list[str]:
    """Lines of a sources.list for a suite, from the mirror this machine uses."""
    if suite in UBUNTU:
        trusted = f"[arch=amd64 signed-by={_ubuntu_keyring()}]"
        mirror = _mirror(UBUNTU_ARCHIVE)
        return [f"deb {trusted} {mirror} {part} main" for part in (suite, f"{suite}-updates")]
    trusted = f"[arch={'amd64,arm64' if suite in FOREIGN else 'amd64'} signed-by={KEYRING}]"
    suite = suite.removesuffix("-arm64")
    lines = [f"deb {trusted} {_mirror(ARCHIVE)} {suite} main"]
    if not suite.endswith("-backports"):
        lines.append(f"deb {trusted} {_mirror(SECURITY)} {suite}-security main")
    return lines


def _ubuntu_keyring() -> Path:
    """The keys of Ubuntu's archive, fetched into the cache."""
    folder = CACHE / "ubuntu-keyring"
    keys = folder / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
    if keys.exists():
        return keys
    try:
        with urllib.request.urlopen(f"{UBUNTU_ARCHIVE}/{UBUNTU_KEYS}", timeout=60) as answer:
            package = answer.read()
    except OSError as error:
        raise VmError(f"Ubuntu's keys can't be fetched ({error}).", LACKING) from None
    if hashlib.sha256(package).hexdigest() != UBUNTU_KEYS_SHA256:
        raise VmError(f"{UBUNTU_ARCHIVE}/{UBUNTU_KEYS} isn't what it was.")
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(package)
        file.flush()
        call(["dpkg", "-x", file.name, folder])
    return keys


def _mirror(default: str) -> str:
    """The mirror that this machine's apt names for the like of `default`, or that itself."""
    ending = re.escape(default.rsplit("/", 1)[1])
    wanted = re.compile(rf"^(?:URIs:|deb\s(?:\[.*\])?)\s*(\S+/{ending}/?)(?:\s|$)", re.MULTILINE)
    folder = Path("/etc/apt/sources.list.d")
    for path in (Path("/etc/apt/sources.list"), *sorted(folder.glob("*"))):
        if path.is_file() and (match := wanted.search(path.read_text())):
            return match[1]
    return default


class Apt:
    """apt on its own configuration and lists below the cache; the system's is left alone."""

    def __init__(self, name: str, sources: list[str], machine: str = "amd64") -> None:
        if not KEYRING.exists():
            raise VmError(
                f"{KEYRING} is missing; install the package debian-archive-keyring.", LACKING
            )
        base = CACHE / name
        for part in ("lists/partial", "cache/archives/partial", "parts", "preferences"):
            (base / part).mkdir(parents=True, exist_ok=True)
        (base / "sources.list").write_text("\n".join(sources) + "\n")
        (base / "status").touch()
        settings = {
            "Dir::Etc::sourcelist": base / "sources.list",
            "Dir::Etc::sourceparts": base / "parts",
            "Dir::Etc::preferencesparts": base / "preferences",
            "Dir::State::lists": base / "lists",
            "Dir::State::status": base / "status",
            "Dir::Cache": base / "cache",
            "APT::Sandbox::User": "root",
            "APT::Architecture": machine,
            "APT::Architectures": f"{machine},amd64",
            "APT::Update::Post-Invoke-Success": "",
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
        }
        self._options = ["-qq", *(f"-o{name}={value}" for name, value in settings.items())]

    def _run(self, tool: str, *words: str, cwd: Path | None = None) -> str:
        return call([tool, *self._options, *words], cwd=cwd)

    def update(self) -> None:
        try:
            self._run("apt-get", "update")
        except VmError as error:
            raise VmError(f"The Debian archive can't be reached ({error}).", LACKING) from None

    def depends(self, names: list[str]) -> set[str]:
        """Names of packages these depend on."""
        said = self._run("apt-cache", "depends", *names)
        return set(re.findall(r"^[ |]*(?:Pre)?Depends: ([^<\s]+)$", said, re.MULTILINE))

    def files(self, names: list[str]) -> list[str]:
        """File names, with versions, of the packages."""
        said = self._run("apt-get", "download", "--print-uris", *names)
        return sorted(line.split()[1] for line in said.splitlines() if line.startswith("'"))

    def download(self, names: list[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "download", *names, cwd=folder)


def _packages(apt: Apt, flavour: str) -> list[str]:
    """Names of all packages the image and headers of a suite come in."""
    found: set[str] = set()
    new = {f"linux-image-{flavour}", f"linux-headers-{flavour}"}
    while new:
        found |= new
        new = {name for name in apt.depends(sorted(new)) if PARTS.match(name)} - found
    # Programs that build modules are of this machine.
    return sorted(f"{name}:amd64" if "-kbuild-" in name else name for name in found)


def _arrange(folder: Path, version: str) -> None:
    """Put modules, kernel and vmlinux where they are for every version (7.x moved them)."""
    modules = folder / "lib" / "modules"
    if not modules.exists():
        modules.parent.mkdir(exist_ok=True)
        (folder / "usr" / "lib" / "modules").rename(modules)
    packed = folder / "boot" / f"vmlinuz-{version}"
    if not packed.exists():
        packed.parent.mkdir(exist_ok=True)
        (modules / version / "vmlinuz").rename(packed)
    config = modules / version / "config"
    if config.is_file():
        shutil.copy(config, folder / "boot" / f"config-{version}")
    (folder / "vmlinux").write_bytes(unpack_kernel(packed.read_bytes()))
    packed.unlink()


def _relocate(kernel: Kernel, target: Path | None = None) -> None:
    """Let links and headers, which name /usr/src, name the folder they lie in (or will: target)."""
    modules = kernel.modules / kernel.version
    if kernel.suite in DEBUG:
        _link(modules / "build", kernel.folder / "linux")
        return
    source = (target or kernel.folder) / "usr" / "src"
    headers = kernel.folder / "usr" / "src" / f"linux-headers-{kernel.version}"
    makefile = headers / "Makefile"
    text = re.sub(
        r"^(include |KBUILD_OUTPUT=)\S*/usr/src/",
        lambda match: f"{match[1]}{source}/",
        makefile.read_text(),
        flags=re.MULTILINE,
    )
    makefile.write_text(text)
    common = f"linux-headers-{kernel.version.rpartition('-')[0]}-common"
    _link(modules / "build", source / headers.name)
    if kernel.suite not in UBUNTU:  # whose headers name each other by where they lie
        _link(modules / "source", source / common)


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def unpack_kernel(image: bytes) -> bytes:
    """The ELF file inside an x86 bzImage (Documentation/arch/x86/boot.rst, protocol 2.08); an
    image for arm64 as it is, which isn't packed."""
    if image[0x38:0x3C] == b"ARM\x64":
        return image
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    unpackers: dict[bytes, Callable[[bytes], bytes]] = {
        b"\xfd7zXZ": lambda data: lzma.LZMADecompressor().decompress(data),
        b"\x1f\x8b": lambda data: zlib.decompressobj(wbits=31).decompress(data),
        b"(\xb5/\xfd": unzstd,
    }
    for magic, unpack in unpackers.items():
        if payload.startswith(magic):
            kernel = unpack(payload)
            if kernel.startswith(b"\x7fELF"):
                return kernel
    raise VmError("The kernel image is packed in a way scripts/vm doesn't know.")


def unzstd(data: bytes) -> bytes:
    # An image ends in its length, which zstd complains of after it has unpacked everything.
    with tempfile.TemporaryFile() as packed:
        packed.write(data)
        packed.seek(0)
        try:
            done = subprocess.run(["zstd", "-dc"], stdin=packed, capture_output=True)
        except FileNotFoundError:
            raise missing("zstd") from None
    return done.stdout
