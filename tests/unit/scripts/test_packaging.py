"""The files of the kernel module that DKMS and Debian get; building it takes a kernel and is
tests/vm's.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mltcp_tools import __version__
from mltcp_tools.kernel.native.csources import algorithm_headers

CHECKOUT = Path(__file__).parents[3]
KMOD = CHECKOUT / "kmod"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as DKMS gets them."""
    folder = tmp_path_factory.mktemp("dkms") / "tcp-mltcp"
    subprocess.run([KMOD / "dkms-install", "--copy", folder], check=True)
    return folder


def test_the_copy_builds_without_the_rest_of_the_checkout(tree: Path) -> None:
    kbuild = (tree / "Kbuild").read_text()
    objects = re.search(r"^tcp_mltcp-y := (.*)$", kbuild.replace("\\\n", " "), re.MULTILINE)
    assert objects
    for name in objects[1].split():
        assert (tree / name).with_suffix(".c").is_file()
    for source in tree.glob("*.[ch]"):
        for included in re.findall(r'^#include "(.*)"$', source.read_text(), re.MULTILINE):
            assert (tree / included).is_file(), f"{source.name} includes {included}"
    assert (tree / "version").read_text().strip() == __version__
    for script in ("probe", "after-install"):
        assert (tree / script).stat().st_mode & 0o111
    assert not [path.name for path in tree.iterdir() if path.is_dir() or path.suffix == ".o"]


def variables(conf: Path, *names: str) -> dict[str, str]:
    """Variables of a dkms.conf, as DKMS reads it."""
    script = 'source "$1"; shift; for name; do printf "%s\\n" "${!name}"; done'
    done = subprocess.run(
        ["bash", "-c", script, "bash", conf, *names], capture_output=True, text=True, check=True
    )
    return dict(zip(names, done.stdout.splitlines(), strict=True))


def test_the_headers_that_the_wheel_gets_are_all_that_programs_include() -> None:
    """scripts/hatch_objects.py puts them in."""
    wanted = {path.resolve() for path in (CHECKOUT / "bpf").glob("*.bpf.[ch]")}
    known = {path.resolve() for path in (*algorithm_headers(), *(CHECKOUT / "bpf").iterdir())}
    while (
        new := {
            path.parent.joinpath(name).resolve()
            for path in wanted
            for name in re.findall(r'^#include "(.*)"$', path.read_text(), re.MULTILINE)
        }
        - wanted
    ):
        assert new <= known
        wanted |= new
    assert KMOD / "mltcp_step.h" in wanted


def test_dkms_conf_has_the_version_and_the_modules_name(tree: Path) -> None:
    wanted = {
        "PACKAGE_NAME": "tcp-mltcp",
        "PACKAGE_VERSION": __version__,
        "BUILT_MODULE_NAME": "tcp_mltcp",
        "AUTOINSTALL": "yes",
    }
    assert variables(tree / "dkms.conf", *wanted) == wanted


@pytest.mark.parametrize(
    ("release", "built"),
    [
        ("4.19.0-27-amd64", False),
        ("5.10.0-33-amd64", False),
        ("5.14.0-427.el9.x86_64", False),
        ("5.15.0-91-generic", True),
        ("5.19.17", True),
        ("6.1.0-56-amd64", True),
        ("6.12.95+deb12-amd64", True),
        ("7.2.12+deb13-cloud-amd64", True),
        ("7.0-rc3", True),
        ("8.0.0", False),
        ("15.15.0", False),
    ],
)
def test_kernels_out_of_range_are_left_alone(tree: Path, release: str, built: bool) -> None:
    pattern = variables(tree / "dkms.conf", "BUILD_EXCLUSIVE_KERNEL")["BUILD_EXCLUSIVE_KERNEL"]
    done = subprocess.run(["bash", "-c", "[[ $1 =~ $2 ]]", "bash", release, pattern], check=False)
    assert (done.returncode == 0) == built


def test_the_examples_name_what_the_module_has() -> None:
    source = (KMOD / "mltcp_main.c").read_text()
    parameters = set(re.findall(r"^module_param\w*\((\w+),", source, re.MULTILINE))
    options = (KMOD / "examples/modprobe.d/tcp-mltcp.conf").read_text().splitlines()[-1].split()
    assert options[:2] == ["options", "tcp_mltcp"]
    assert {option.partition("=")[0] for option in options[2:]} <= parameters
    loaded = (KMOD / "examples/modules-load.d/tcp-mltcp.conf").read_text().splitlines()[-1]
    assert loaded == "tcp_mltcp"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--nonsense"], 2, "unknown argument --nonsense"),
        (["--kernel"], 2, "--kernel needs a value"),
        (["--copy"], 2, "--copy needs a value"),
    ],
)
def test_dkms_install_refuses_nonsense(arguments: list[str], code: int, sentence: str) -> None:
    done = subprocess.run(
        [KMOD / "dkms-install", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr


@pytest.mark.skipif(
    not all(map(shutil.which, ("dh_dkms", "dpkg-buildpackage"))),
    reason="building Debian packages takes debhelper, dh-dkms and dpkg-dev",
)
def test_the_debian_package_has_the_sources_and_only_examples(tmp_path: Path) -> None:
    subprocess.run([CHECKOUT / "scripts/build-deb", tmp_path], check=True, capture_output=True)
    name = f"tcp-mltcp-dkms_{__version__}-1_all.deb"
    assert {path.name for path in tmp_path.glob("*.d*")} >= {
        name,
        f"tcp-mltcp_{__version__}-1.dsc",
        f"tcp-mltcp_{__version__}-1.debian.tar.xz",
    }
    listing = subprocess.run(
        ["dpkg-deb", "-c", tmp_path / name], capture_output=True, text=True, check=True
    ).stdout
    files = {line.split()[-1] for line in listing.splitlines() if not line.endswith("/")}
    source = f"./usr/src/tcp-mltcp-{__version__}"
    wanted = {path.name for path in KMOD.glob("*.[ch]")} | {"Kbuild", "Makefile", "probe"}
    assert {f"{source}/{each}" for each in wanted} <= files
    # What changes how a machine behaves is the operator's to switch on.
    assert not [file for file in files if not file.startswith(("./usr/src/", "./usr/share/doc/"))]
    unpacked = tmp_path / "unpacked"
    subprocess.run(["dpkg-deb", "-R", tmp_path / name, unpacked], check=True)
    conf = unpacked / source / "dkms.conf"
    assert variables(conf, "PACKAGE_VERSION")["PACKAGE_VERSION"] == __version__
    assert (
        f"/usr/src/tcp-mltcp-{__version__}/after-install"
        in (unpacked / "DEBIAN/postinst").read_text()
    )
