# SPDX-License-Identifier: BSD-2-Clause
"""An operator's steps in a VM: install, try on a job though the host reboots in between, upgrade
under the job, remove everything."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from netns.clean_system import NEEDED, files
from netns.trainings import SCRIPT
from vm.test_distributions import folder, made, pytestmark, ran, suite  # noqa: F401
from vms import kernels
from vms.boot import PANIC
from vms.common import CHECKOUT

from mltcp_tools import __version__

NEXT = "99.1"
HOST = """
found() (
    set +e
    cut -d" " -f1 /proc/modules; find /sys/fs/bpf /run; cat /etc/passwd /etc/group
    cat /proc/[0-9]*/comm | grep mltcp; find /proc/sys/net -type f | sort | xargs grep -sH ""
    true
)
ask() {
    echo "$@" >&3
    asked=$((asked + 1))
    while [ "$(wc -l <answers)" != $asked ]; do sleep 0.2; done
    tail -n 1 answers
}
runs() { ask names; [ "$(tail -n 1 answers)" = "[\\"$1\\", \\"$1\\"]" ]; }
cd /root
mkfifo /run/commands  # the root is a host's folder, which takes no pipes from VMs
exec 3<>/run/commands
python3 train.py mark cc=reno <&3 >answers &
asked=1
ask connect
ask connect
ss --tcp >/dev/null  # the kernel loads the module that answers
mkdir /run/mltcp  # unloading empties this folder of the unit, and leaves it
"""
BEFORE_REBOOT = f"""
found >before
dpkg -i mltcp-tools_{__version__}*.deb
mltcp doctor | grep "BPF backend: ready"
mltcp load
mltcp attach train.py --job gpt2 --kind all
runs mltcp
echo "train 1000000 0.03 200000" >&3
mltcp trial --job gpt2 --phase-time 1s --abort-if-slower 300% &
until [ -e /run/mltcp/trial/trial.json ] && ! ss -Hti | grep -q mltcp; do sleep 0.2; done
sync
echo b >/proc/sysrq-trigger
sleep 600
"""
STEPS = f"""
found >after
diff before after
[ "$(mltcp status | grep -c "nothing is loaded")" = 2 ]
mltcp status --check | grep -F 'run `mltcp load`'
mltcp trial --job gpt2 2>&1 | grep -F 'run `mltcp load`'
mltcp load
mltcp attach train.py --job gpt2 --kind all
runs mltcp
echo "train 1000000 0.03 200000" >&3
mltcp trial --job gpt2 --phase-time 1s --abort-if-slower 300%
ask stop
echo "# the operator's" >>/etc/mltcp/agent.yaml

dpkg -i mltcp-tools_{NEXT}*.deb
runs mltcp
mltcp status | grep -F "{__version__}"
# The unit starts with this; nothing runs units here.
$(sed -n "s|^ExecStartPre=.*\\(/usr/bin/mltcp .*\\)|\\1|p" /lib/systemd/system/mltcp-agent.service)
runs mltcp
ask train 3 0.01 10000
mltcp status --check  # fails unless the installed build is loaded
mltcp status jobs --json | grep '"flows": 4'
grep "# the operator's" /etc/mltcp/agent.yaml
mltcp detach gpt2
runs reno
mltcp unload --everything
found >after
diff before after

mltcp load
mltcp attach train.py --job gpt2 --kind all
runs mltcp
dpkg --remove mltcp-tools
runs reno
ask train 3 0.01 10000
found >after
diff before after
dpkg --purge mltcp-tools
kill %1
"""


def package(checkout: Path, into: Path, version: str) -> None:
    """Build the package of this checkout as that version, from a copy."""
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    (checkout / ".venv").symlink_to(CHECKOUT / ".venv")
    about = checkout / "mltcp_tools/__init__.py"
    about.write_text(re.sub('__version__ = ".*"', f'__version__ = "{version}"', about.read_text()))
    subprocess.run([checkout / "scripts/build-tools-deb", into], check=True, capture_output=True)


@pytest.mark.parametrize("suite", ["bookworm"], indirect=True)
def test_operator_installs_tries_upgrades_and_leaves_nothing(
    suite: str,  # noqa: F811
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    root = made(suite, folder, NEEDED)
    # `mltcp doctor` doesn't make the kernel load modules that are on disk.
    kernel = kernels.require(suite)
    on_disk = Path(kernel.version, "modules.dep")
    (root / "lib/modules" / on_disk).parent.mkdir(parents=True)
    shutil.copy(kernel.modules / on_disk, root / "lib/modules" / on_disk)
    before = files(root)
    for version in (__version__, NEXT):
        package(tmp_path / version, root / "root", version)
    for each in (SCRIPT.with_name("renaming.py"), CHECKOUT / "mltcp_tools/hooks.py"):
        shutil.copy(each, root / "root")
    script = SCRIPT.read_text().replace("from mltcp_tools import hooks", "import hooks")
    (root / "root/train.py").write_text(script)
    ran(suite, root, HOST + BEFORE_REBOOT, "--icount", "--timeout=40min", status=PANIC)
    said = ran(suite, root, HOST + STEPS, "--icount", "--timeout=40min")
    print(said)
    assert re.search(r"In short: (No difference is proven|Iterations are \w+ with mltcp): ", said)
    assert files(root) - before == set()
