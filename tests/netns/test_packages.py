# SPDX-License-Identifier: BSD-2-Clause
"""The packages of the tools in a system that has nothing else: installed, upgraded, removed.

Takes minutes and a Debian mirror, so it comes with --full only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netns.clean_system import clean_system

from mltcp_tools import __version__
from mltcp_tools.cli.main import COMMANDS

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None, reason="making a clean system takes mmdebstrap"
    ),
]

CHECKOUT = Path(__file__).parents[2]
MLTCP = CHECKOUT / ".venv/bin/mltcp"
Inside = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_system(tmp_path_factory.mktemp("clean"))


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
        if (root / "proc/self").exists():
            umount_proc(root)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that can be reported on."""
    run = tmp_path_factory.mktemp("recorded") / "run"
    small = ("--iterations", "5", "--repetitions", "1", "--trace", "0", "--variants", "reno,mltcp")
    simulate = [MLTCP, "simulate", "two-jobs", "-o", run, *small]
    subprocess.run(simulate, check=True, capture_output=True)
    return run


def test_debian_package_brings_pages_unit_and_rules(
    inside: Inside, root: Path, packages: tuple[str, str]
) -> None:
    """Upgrades and removal are in tests/vm/test_operator.py, under a job that trains."""
    assert inside("which", "clang").returncode != 0
    done = inside("apt-get", "install", "-y", "--no-install-recommends", packages[0])
    assert done.returncode == 0, done.stderr
    assert inside("mltcp", "--version").stdout == f"mltcp {__version__}\n"
    assert "valid, rules: 2" in inside("mltcp", "agent", "--check").stdout
    unit = (root / "lib/systemd/system/mltcp-agent.service").read_text()
    assert "\nExecStart=/usr/bin/mltcp agent\n" in unit
    assert unit == inside("mltcp", "agent", "--print", "unit").stdout
    pages = {path.name for path in (root / "usr/share/man/man1").glob("mltcp*")}
    assert pages == {"mltcp.1.gz", *(f"mltcp-{name}.1.gz" for name in COMMANDS)}
    umount_proc(root)  # as in an image that is being made: what runs on this host isn't its own
    done = inside("apt-get", "purge", "-y", "mltcp-tools")
    assert (done.returncode, "not everything" in done.stderr) == (0, False), done


@pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="takes rpm: scripts/setup --full")
def test_rpm_install_upgrade_remove(inside: Inside, root: Path, tmp_path: Path) -> None:
    """By rpm of this host, into that system, which knows of no RPM packages."""
    packages = []
    for release in ("1", "2"):
        build = ["env", f"RPM_RELEASE={release}", CHECKOUT / "scripts/build-tools-rpm", tmp_path]
        done = subprocess.run(build, check=True, capture_output=True, text=True)
        packages.append(done.stdout.splitlines()[-1])

    def rpm(*words: str) -> str:
        command = ["rpm", f"--root={root}", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout

    assert f"/usr/bin/python3.{sys.version_info.minor}\n" in rpm("-qp", "--requires", packages[0])
    rpm("-i", "--nodeps", packages[0])
    assert inside("mltcp", "--version").stdout == f"mltcp {__version__}\n"
    assert "valid, rules: 2" in inside("mltcp", "agent", "--check").stdout
    rules = root / "etc/mltcp/agent.yaml"
    rules.write_text(rules.read_text() + "# the operator's\n")
    rpm("-U", "--nodeps", packages[1])
    assert rules.read_text().endswith("# the operator's\n")
    assert rpm("-q", "mltcp-tools").startswith(f"mltcp-tools-{__version__}-2.")
    unit = (root / "usr/lib/systemd/system/mltcp-agent.service").read_text()
    assert unit == inside("mltcp", "agent", "--print", "unit").stdout
    umount_proc(root)  # as in an image that is being made: what runs on this host isn't its own
    rpm("-e", "mltcp-tools")
    left = [*root.glob("usr/**/*mltcp*"), *root.glob("etc/mltcp/*")]
    assert [each.name for each in left] == ["agent.yaml.rpmsave"]
    left[0].unlink()


def test_debian_package_without_reports_names_the_right_one(
    inside: Inside, root: Path, packages: tuple[str, str], recorded: Path
) -> None:
    install = ("apt-get", "install", "-y", "--no-install-recommends")
    assert inside(*install, packages[1]).returncode == 0
    shutil.copytree(recorded, root / "root/run")
    try:
        done = inside("mltcp", "report", "/root/run")
        assert done.returncode == 3
        (advice,) = re.findall("`(EXTRAS=report scripts/build-tools-deb)`", done.stderr)
        build = f"DEBIAN_REVISION=2 {advice} {root}/root"
        built = subprocess.check_output(build, shell=True, text=True, cwd=CHECKOUT).strip()
        done = inside(*install, f"/root/{Path(built).name}")
        assert done.returncode == 0, done.stderr
        done = inside("mltcp", "report", "/root/run")
        assert done.returncode == 0, done.stderr
        assert "mltcp" in done.stdout
        said = inside("mltcp", "agent", "--metrics", "127.0.0.1:9477").stderr
        assert "run: apt-get install python3-prometheus-client." in said
    finally:
        shutil.rmtree(root / "root/run")
        inside("apt-get", "purge", "-y", "mltcp-tools")


def umount_proc(root: Path) -> None:
    # Whoever looks through this host's mounts at that time has it open.
    subprocess.run(["umount", "--lazy", root / "proc"], check=True)


def test_the_wheel_comes_from_the_source_distribution_alone(tmp_path: Path) -> None:
    """The wheel of an unpacked source distribution has what the checkout's has."""
    build = [sys.executable, "-m", "build", "--outdir", tmp_path]
    subprocess.run([*build, "--sdist", CHECKOUT], check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path)
    source = tmp_path / archive.name.removesuffix(".tar.gz")
    environment = os.environ | {"MLTCP_REQUIRE_OBJECTS": "1"}
    names = []
    for where in (source, CHECKOUT):
        subprocess.run(
            [*build, "--wheel", where], check=True, capture_output=True, env=environment, cwd="/"
        )
        (wheel,) = tmp_path.glob("*.whl")
        with zipfile.ZipFile(wheel) as opened_wheel:
            names.append(sorted(opened_wheel.namelist()))
        wheel.unlink()
    assert names[0] == names[1]
    for wanted in (
        "live/agent/slurm/epilog",
        "csrc/objects/follow.bpf.o",
        "csrc/kmod/mltcp_step.h",
    ):
        assert f"mltcp_tools/{wanted}" in names[0]


def test_the_ansible_role_installs_again_and_removes(
    inside: Inside, root: Path, packages: tuple[str, str]
) -> None:
    # A clean system comes without lists of packages.
    done = inside("apt-get", "update")
    assert done.returncode == 0, done.stderr
    done = inside("apt-get", "install", "-y", "--no-install-recommends", "ansible-core")
    assert done.returncode == 0, done.stderr
    shutil.copytree(CHECKOUT / "scripts/ansible", root / "root/ansible", dirs_exist_ok=True)

    def play(*more: str) -> str:
        given = ("-e", "ansible_become=false", "-e", f"mltcp_package={packages[0]}", *more)
        book = ("ansible-playbook", "-i", "localhost,", "-c", "local", "/root/ansible/mltcp.yml")
        done = inside("env", "LC_ALL=C.UTF-8", *book, *given)
        assert done.returncode == 0, done.stdout
        return done.stdout

    rules = "{mltcp_rules: {rules: [{job: a, cgroup: [a]}]}}"
    assert "changed=0" not in play("-e", rules)
    assert "valid, rules: 1" in inside("mltcp", "agent", "--check").stdout
    assert "changed=0" in play("-e", rules)
    assert "changed=0" not in play("-e", "mltcp_state=absent")
    assert not (root / "usr/bin/mltcp").exists()
    assert "changed=0" in play("-e", "mltcp_state=absent")
