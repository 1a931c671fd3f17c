# SPDX-License-Identifier: BSD-2-Clause
"""Distributions of their own, with their Python and their kernel: the tools by pip, the module by
DKMS, both in a VM. What is shown here goes into the table of supported systems.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netns.clean_system import clean_system, files
from vm.bridge import VM, unavailable
from vms import kernels
from vms.common import CACHE, CHECKOUT, LACKING

from mltcp_tools import __version__

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None, reason="making a clean system takes mmdebstrap"
    ),
]

# The root as it is, in the VM: what is written there is the test's own. It has a process 1 of its
# own, so packages take it for a host.
IN_ROOT = r"""
set -eu
cd "$1"
for folder in sys dev; do mount --rbind /$folder $folder; done
mount -t tmpfs run run
exec unshare --pid --fork sh -c 'mount -t proc proc proc; exec chroot . "$@"' sh \
    /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 MLTCP_IN_GUEST=1 \
    PATH=/opt/mltcp/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euxc "$2"
"""

NOTED = ("var/cache/*", "var/lib/dkms/mok.*", "*/modules.*")
"""By ldconfig, DKMS (its own key) and depmod, whenever they run."""

TRANSFER = """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
with socket.socket() as sender:
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"mltcp")
    sender.connect(server.getsockname())
    receiver = server.accept()[0]
    threading.Thread(target=sender.sendall, args=(bytes(2_000_000),)).start()
    left = 2_000_000
    while left:
        left -= len(receiver.recv(1 << 20))
    print("ran", sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).decode())
"""


ATTACHED = """
import os, socket, subprocess, sys, threading
server = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(server.getsockname()) as sender:
    receiver = server.accept()[0]
    command = [*sys.argv[1:], "--job", "one", "--kind", "all", str(os.getpid())]
    subprocess.run(command, check=True)
    threading.Thread(target=sender.sendall, args=(bytes(2_000_000),)).start()
    left = 2_000_000
    while left:
        left -= len(receiver.recv(1 << 20))
    print("ran", sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).decode())
"""
"""A burst over a connection that was attached before."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, with its compiled objects."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, CHECKOUT]
    environment = os.environ | {"MLTCP_REQUIRE_OBJECTS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def suite(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if reason := unavailable(name):
        pytest.skip(reason)
    return name


def made(suite: str, folder: Path, needed: str) -> Path:
    """A root of the distribution."""
    return clean_system(folder, needed, suite, kernels.suite_sources(suite))


@pytest.fixture
def folder(suite: str) -> Iterator[Path]:
    """A folder that VMs see, too: they have a /tmp of their own."""
    found = Path(tempfile.mkdtemp(prefix=f"{suite}-", dir=CACHE))
    yield found
    shutil.rmtree(found)


def inside(root: Path, *words: str) -> str:
    """Run a command there, with what a booted system has mounted; what it prints."""
    mounts = 'for each in proc dev; do mount --rbind /$each "$0/$each"; done; exec chroot "$0" "$@"'
    own = ["unshare", "--mount", "sh", "-ec", mounts, root, *words]
    done = subprocess.run(own, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ran(suite: str, root: Path, script: str, *options: str, status: int = 0) -> str:
    """Run a script in the distribution, in a VM with its kernel, which ends with the status; what
    it prints."""
    command = (VM, "run", suite, "--timeout=20min", *options, "--", "sh", "-c", IN_ROOT, "sh")
    done = subprocess.run(
        [*command, root, script], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def system(root: Path) -> dict[str, str]:
    """The names that the table has for the distribution."""
    lines = (root / "etc/os-release").read_text().splitlines()
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    python = inside(root, "python3", "-V").split()[1]
    return {"system": f"Debian {release['VERSION_ID'].strip(chr(34))}", "python": python}


def test_the_tools_load_ebpf_programs_there(
    suite: str, wheel: Path, folder: Path, supports: Callable[..., None]
) -> None:
    root = made(suite, folder, "python3-venv,libbpf1,libelf1,kmod,iproute2")
    python = system(root)["python"]
    # The packages that the wheel needs are fetched here, for the distribution's Python.
    fetch = [sys.executable, "-m", "pip", "--quiet", "download", "--dest", root / "root/wheels"]
    fetch += ["--only-binary=:all:", f"--python-version={python}", wheel]
    subprocess.run(fetch, check=True)
    inside(root, "python3", "-m", "venv", "/opt/mltcp")
    pip = ("/opt/mltcp/bin/python", "-m", "pip", "--quiet", "install")
    inside(root, *pip, "--no-index", "--find-links=/root/wheels", "mltcp-tools")
    printed = ran(
        suite,
        root,
        f"uname -r\nmltcp load --backend bpf\npython3 -c '{TRANSFER}'\n"
        "mltcp status --backend bpf\nmltcp unload\n"
        "! grep -q mltcp /proc/sys/net/ipv4/tcp_available_congestion_control",
    )
    assert "ran mltcp\0" in printed
    supports(kernel=printed.splitlines()[0], ebpf="run", tools="run", **system(root))


def test_dkms_builds_the_module_for_its_kernel_and_takes_it_off(
    suite: str, folder: Path, supports: Callable[..., None]
) -> None:
    root = made(suite, folder, "python3,kmod,dkms,linux-headers-amd64")
    subprocess.run([CHECKOUT / "scripts/build-deb", folder], check=True, capture_output=True)
    (package,) = folder.glob("tcp-mltcp-dkms_*.deb")
    before = files(root, *NOTED)
    shutil.copy(package, root / "root")
    inside(root, "dpkg", "-i", f"/root/{package.name}")
    (kernel,) = (each.name for each in (root / "lib/modules").iterdir())
    if "installed" not in inside(root, "dkms", "status", "tcp-mltcp"):
        # The package's script builds for the running kernel, which here is not the system's own.
        inside(root, "dkms", "install", f"tcp-mltcp/{__version__}", "-k", kernel)
    built = inside(root, "dkms", "status", "tcp-mltcp")
    assert f"tcp-mltcp/{__version__}, {kernel}, x86_64: installed" in built
    how = "built"
    if kernel == kernels.require(suite).version:  # they are fetched at different times
        printed = ran(
            suite,
            root,
            f"insmod /lib/modules/{kernel}/updates/dkms/tcp_mltcp.ko*\n"
            f"python3 -c '{TRANSFER}'\nrmmod tcp_mltcp",
        )
        assert "ran mltcp\0" in printed
        how = "run"
    supports(kernel=kernel, module=how, **system(root))
    inside(root, "dpkg", "-P", "tcp-mltcp-dkms")
    assert files(root, *NOTED) - before == set()


@pytest.mark.skipif(
    not all(map(shutil.which, ("qemu-system-aarch64", "aarch64-linux-gnu-gcc-12"))),
    reason="takes qemu-system-arm and gcc-aarch64-linux-gnu: scripts/setup --full",
)
def test_arm64_loads_attaches_and_runs_a_burst(wheel: Path, supports: Callable[..., None]) -> None:
    """Debian's kernel on an emulated machine, whose root has the tools for its Python."""
    tools = Path(tempfile.mkdtemp(prefix="arm64-", dir=CACHE))
    try:
        pip = [sys.executable, "-m", "pip", "--quiet", "install", "--target", tools, wheel]
        pip += ["--only-binary=:all:", "--platform=manylinux2014_aarch64", "--python-version=3.11"]
        subprocess.run(pip, check=True)
        script = "cd /; mltcp='python3 -m mltcp_tools.cli.main'; uname -r; python3 -V\n" + "".join(
            f"$mltcp load --backend {each}\n"
            f"python3 -c '{ATTACHED}' $mltcp attach\n"
            "$mltcp unload --everything\n"
            "! grep -q mltcp /proc/sys/net/ipv4/tcp_available_congestion_control\n"
            for each in ("kmod", "bpf")
        )
        command = [VM, "run", "bookworm-arm64", "--module", "--timeout=40min"]
        command += [f"--env=PYTHONPATH={tools}", "--", "sh", "-euxc", script]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    finally:
        shutil.rmtree(tools)
    if done.returncode == LACKING and "can't be fetched" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    kernel, python, *_ = done.stdout.splitlines()
    assert done.stdout.count("ran mltcp\0") == 2
    named = {"system": "Debian 12, arm64", "kernel": kernel, "python": python.split()[1]}
    supports(**named, ebpf="run", module="run", tools="run")
