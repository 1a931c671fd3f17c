# SPDX-License-Identifier: BSD-2-Clause
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


def variables(conf: Path, *names: str) -> dict[str, str]:
    """Variables of a dkms.conf, as DKMS reads it."""
    script = 'source "$1"; shift; for name; do printf "%s\\n" "${!name}"; done'
    done = subprocess.run(
        ["bash", "-c", script, "bash", conf, *names], capture_output=True, text=True, check=True
    )
    return dict(zip(names, done.stdout.splitlines(), strict=True))


def test_wheel_headers_are_all_that_programs_include() -> None:
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


KERNEL = {
    "Makefile": "modules: $(patsubst %,$(M)/%,$(shell sed -n 's/obj-m += //p' $(M)/Kbuild))\n"
    "%.o: %.c\n\tgcc -c $(KCFLAGS) -Iinclude $< -o $@\n",
    "include/linux/cgroup.h": """
        struct sock_cgroup_data { struct cgroup *cgroup; };
        struct cgroup *sock_cgroup_ptr(struct sock_cgroup_data *data);
    """,
    "include/linux/net.h": """
        typedef unsigned char u8; typedef unsigned int u32; typedef unsigned long size_t;
        #define __used __attribute__((used))
        typedef struct { void *at; } sockptr_t;
        #define KERNEL_SOCKPTR(to) ((sockptr_t){ to })
        struct socket; struct sock { struct sock_cgroup_data sk_cgrp_data; };
        struct proto_ops { int (*setsockopt)(struct socket *, int, int, sockptr_t, unsigned int); };
        struct socket { struct proto_ops *ops; };
    """,
    "include/net/tcp.h": """
        #define SOL_TCP 6
        #define TCP_CONGESTION 13
        struct tcp_sock { u32 snd_ssthresh; };
        struct ack_sample; union tcp_cc_info; enum tcp_ca_event { ONE };
        struct tcp_congestion_ops {
            u32 (*ssthresh)(struct sock *); void (*cong_avoid)(struct sock *, u32, u32);
            u32 (*undo_cwnd)(struct sock *); void (*set_state)(struct sock *, u8);
            void (*pkts_acked)(struct sock *, const struct ack_sample *);
            void (*cwnd_event)(struct sock *, enum tcp_ca_event);
            void (*in_ack_event)(struct sock *, u32);
            size_t (*get_info)(struct sock *, u32, int *, union tcp_cc_info *);
        };
    """,
}
"""The headers of a kernel, as far as the probe asks them, and a build that makes its objects."""


@pytest.mark.parametrize(
    ("file", "was", "becomes", "action", "left_alone"),
    [
        ("include/net/tcp.h", "", "", "build", False),
        ("include/net/tcp.h", "struct sock *, u32, u32)", "struct sock *, u32)", "build", True),
        ("include/net/tcp.h", "struct sock *, u32, u32)", "struct sock *, u32)", "status", False),
        ("include/linux/net.h", "sockptr_t, unsigned", "char *, unsigned", "install", True),
        ("Makefile", "gcc", "no-compiler", "build", False),  # DKMS itself shall say so
    ],
)
def test_kernels_that_the_module_does_not_fit_are_left_alone(
    tree: Path, tmp_path: Path, file: str, was: str, becomes: str, action: str, left_alone: bool
) -> None:
    for name, text in KERNEL.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace(was, becomes) if name == file else text)
    where = tmp_path / f"tcp-mltcp-{__version__}"
    where.symlink_to(tree)
    script = (
        'action=$1 source_tree=$2 kernel_source_dir=$2; source "$3";'
        " [[ -z $BUILD_EXCLUSIVE_KERNEL || 6.1.0 =~ $BUILD_EXCLUSIVE_KERNEL ]]"
    )
    done = subprocess.run(["bash", "-c", script, "bash", action, tmp_path, tree / "dkms.conf"])
    assert (done.returncode != 0) == left_alone


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
