"""The Debian package of the tools in a system that has nothing else: installed, upgraded, removed.

Takes minutes and a Debian mirror, so it comes with --full only.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mltcp_tools import __version__

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None, reason="making a clean system takes mmdebstrap"
    ),
]

CHECKOUT = Path(__file__).parents[2]
NEEDED = "python3,libbpf1,libelf1,kmod,iproute2,debianutils"
Inside = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean system of this host's release."""
    folder = tmp_path_factory.mktemp("clean") / "root"
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )["VERSION_CODENAME"].strip('"')
    making = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={NEEDED}", release, folder]
    subprocess.run(making, check=True)
    return folder


@pytest.fixture(scope="module")
def packages(root: Path) -> tuple[str, str]:
    """The package and the one after it, there."""
    for revision in ("1", "2"):
        subprocess.run(
            [
                "env",
                f"DEBIAN_REVISION={revision}",
                CHECKOUT / "scripts/build-tools-deb",
                root / "root",
            ],
            check=True,
            capture_output=True,
        )
    first, second = sorted((root / "root").glob("mltcp-tools_*.deb"))
    return f"/root/{first.name}", f"/root/{second.name}"


@pytest.fixture
def inside(root: Path) -> Iterator[Inside]:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["chroot", root, *words], capture_output=True, text=True)

    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    try:
        yield run
    finally:
        subprocess.run(["umount", root / "proc"], check=True)


def test_install_upgrade_remove_purge(
    inside: Inside, root: Path, packages: tuple[str, str]
) -> None:
    install = ("apt-get", "install", "-y", "--no-install-recommends")
    assert inside("which", "clang").returncode != 0
    done = inside(*install, packages[0])
    assert done.returncode == 0, done.stderr
    assert inside("mltcp", "--version").stdout == f"mltcp {__version__}\n"
    assert "valid, rules: 2" in inside("mltcp", "agent", "--check").stdout
    unit = (root / "lib/systemd/system/mltcp-agent.service").read_text()
    assert "\nExecStart=/usr/bin/mltcp agent\n" in unit
    assert unit == inside("mltcp", "agent", "--print-unit").stdout
    assert list((root / "usr/share/man/man1").glob("mltcp*.1.gz"))
    asked = (
        "import sys; sys.path.insert(0, '/usr/lib/mltcp-tools');"
        "from mltcp_tools.kernel.native.objects import shipped_object as shipped;"
        "assert all(shipped(name, ()) for name in ('mltcp', 'mltcp_reno', 'mltcp_cubic', 'flows'))"
    )
    done = inside("python3", "-I", "-c", asked)
    assert done.returncode == 0, done.stderr

    rules = root / "etc/mltcp/agent.yaml"
    rules.write_text(rules.read_text() + "# the operator's\n")
    done = inside(*install, packages[1])
    assert done.returncode == 0, done.stderr
    assert rules.read_text().endswith("# the operator's\n")

    assert inside("apt-get", "remove", "-y", "mltcp-tools").returncode == 0
    assert rules.exists()
    for gone in ("usr/bin/mltcp", "usr/lib/mltcp-tools", "lib/systemd/system/mltcp-agent.service"):
        assert not (root / gone).exists()
    assert inside("apt-get", "purge", "-y", "mltcp-tools").returncode == 0
    for gone in ("etc/mltcp", "var/cache/mltcp"):
        assert not (root / gone).exists()
