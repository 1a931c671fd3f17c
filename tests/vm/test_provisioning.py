# SPDX-License-Identifier: BSD-2-Clause
"""vagrant/provision.sh and the Debian package in a VM, on a Debian of their own.

The Debian is the root of the box that `vagrant/try --box` makes, with provision.sh run in it once;
here it is used by the kernel that its module was built for.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from vm.bridge import QUICK, VM, unavailable
from vms import kernels
from vms.common import CACHE, CHECKOUT

from mltcp_tools import __version__

(SUITE,) = QUICK
ROOT = CHECKOUT / ".cache/vagrant/root"
pytestmark = pytest.mark.full

# Changes to the Debian are made in a layer over it, in the VM's memory. What the checkout has by
# now is what the machines of Vagrant get.
IN_DEBIAN = r"""
set -eu
mkdir /tmp/layer /tmp/debian
mount -t tmpfs -o size=1G tmpfs /tmp/layer
mkdir /tmp/layer/upper /tmp/layer/work
mount -t overlay -o lowerdir="$1",upperdir=/tmp/layer/upper,workdir=/tmp/layer/work \
    overlay /tmp/debian
mkdir -p /tmp/debian/deb
mount --bind "$2" /tmp/debian/opt/mltcp
mount --bind "$3" /tmp/debian/deb
for folder in proc sys dev; do mount --rbind /$folder /tmp/debian/$folder; done
# The kernel looks for modules in the VM's root; here the Debian's are meant.
printf '#!/bin/sh\nexec chroot /tmp/debian /sbin/modprobe "$@"\n' >/tmp/modprobe
chmod +x /tmp/modprobe
echo /tmp/modprobe >/proc/sys/kernel/modprobe
shift 3
exec chroot /tmp/debian /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euxc "$1"
"""


@pytest.fixture(scope="module")
def debian() -> str:
    """The kernel's release that the Debian and the VM have in common."""
    if reason := unavailable(SUITE):
        pytest.skip(reason)
    done = subprocess.run(
        [CHECKOUT / "vagrant/try", "--box"], check=False, capture_output=True, text=True
    )
    if "Debian packages are missing" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    release = next((ROOT / "lib/modules").iterdir()).name
    kernel = kernels.require(SUITE)
    if release != kernel.version:
        pytest.skip(f"the box has kernel {release}, the VM {kernel.version}: fetch them anew")
    return release


@pytest.fixture
def deb() -> Iterator[Path]:
    """A folder that the VM sees, too: it has a /tmp of its own."""
    with tempfile.TemporaryDirectory(prefix="deb-", dir=CACHE) as folder:
        yield Path(folder)


def run(script: str, deb: Path) -> str:
    """Run a script in the Debian in a VM; what it prints."""
    done = subprocess.run(
        [
            *(VM, "run", SUITE, "--timeout=20min", "--", "sh", "-c", IN_DEBIAN, "sh"),
            *(ROOT, CHECKOUT, deb, script),
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_sender_is_provisioned_and_has_the_module(debian: str, deb: Path) -> None:
    printed = run(
        """
        bash /opt/mltcp/vagrant/provision.sh install sender
        bash /opt/mltcp/vagrant/provision.sh install sender
        dkms status tcp-mltcp
        sysctl -qw net.ipv4.tcp_congestion_control=mltcp  # loads the module by its name
        cat /sys/module/tcp_mltcp/version
        sysctl -qw net.ipv4.tcp_congestion_control=cubic
        mltcp status --backend kmod
        mltcp unload --backend kmod
        test ! -e /sys/module/tcp_mltcp
        /opt/mltcp/kmod/dkms-install --remove
        ! modinfo tcp_mltcp
        """,
        deb,
    )
    lines = printed.splitlines()
    assert f"tcp-mltcp/{__version__}, {debian}, x86_64: installed" in lines
    # Built at most once: the second call finds it there.
    assert printed.count("Building module") <= 1
    assert __version__ in lines
    for name in ("mltcp", "mltcp_reno", "mltcp_cubic", "mltcp_dctcp"):
        assert any(line.split()[:2] == ["kmod:", name] for line in lines)
