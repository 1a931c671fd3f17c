# SPDX-License-Identifier: BSD-2-Clause
"""The Debian package on a system that trains: upgraded and removed under a live job.

The system has a root, processes and records of its own, so that its package's scripts take it for a
host; the kernel is this one's. Takes minutes and a Debian mirror, so it comes with --full only.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from netns.backends_here import backend_fixture
from netns.clean_system import clean_system, files
from netns.trainings import SCRIPT
from support import procfs
from support.waiting import wait_for

from mltcp_tools import __version__
from mltcp_tools.kernel.backends.base import Backend

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        shutil.which("mmdebstrap") is None, reason="making a clean system takes mmdebstrap"
    ),
]
backend = backend_fixture()

CHECKOUT = Path(__file__).parents[2]
NEXT = "99.1"
_PREPARE = """
set -e
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
for each in sys dev; do mount --rbind /$each $each; done
mount -t tmpfs tmpfs run
pivot_root . mnt
python3 -c 'import ctypes; ctypes.CDLL(None).umount2(b"/mnt", 2)'  # such a system has no umount
exec sleep infinity
"""


class System:
    """One of these, which runs."""

    def __init__(self, root: Path) -> None:
        own = ("--mount", "--propagation=private", "--pid", "--fork", "--kill-child")
        self._process = subprocess.Popen(["unshare", *own, "sh", "-c", _PREPARE, "sh", root])

        def runs() -> int:
            found = procfs.children(self._process.pid)
            return found[0] if found and procfs.command(found[0])[:1] == ["sleep"] else 0

        pid = wait_for(runs, "the system", beside=self._process)
        enter = f"nsenter --target={pid} --mount --pid --root --wd"
        environment = "env -i LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        self.enter: Sequence[str] = (*enter.split(), *environment.split())

    def run(self, *words: str) -> str:
        done = subprocess.run([*self.enter, *words], capture_output=True, text=True)
        assert done.returncode == 0, (done.args, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_system(tmp_path_factory.mktemp("host"))


@pytest.fixture
def system(root: Path, backend: Backend) -> Iterator[System]:
    started = System(root)
    try:
        yield started
    finally:
        started.end()


def package(folder: Path, into: Path, version: str) -> str:
    """Build the package of this checkout as that version; its name."""
    checkout = folder / version
    tracked = subprocess.check_output(["git", "-C", CHECKOUT, "ls-files", "-z"]).split(b"\0")
    for name in filter(None, map(bytes.decode, tracked)):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, checkout / name)
    (checkout / ".venv").symlink_to(CHECKOUT / ".venv")
    about = checkout / "mltcp_tools/__init__.py"
    about.write_text(re.sub('__version__ = ".*"', f'__version__ = "{version}"', about.read_text()))
    build = [checkout / "scripts/build-tools-deb", into]
    return Path(subprocess.check_output(build, text=True).splitlines()[-1]).name


@contextlib.contextmanager
def trains(system: System, root: Path) -> Iterator[subprocess.Popen[str]]:
    """A job of that system with a connection that ran reno, by the host's own training script."""
    mark = f"mark-{uuid.uuid4().hex}"
    shutil.copy(SCRIPT, root / "root/train.py")
    for each in (SCRIPT.with_name("renaming.py"), CHECKOUT / "mltcp_tools/hooks.py"):
        shutil.copy(each, root / "root" / each.name)
    script = root / "root/train.py"
    script.write_text(script.read_text().replace("from mltcp_tools import hooks", "import hooks"))
    with subprocess.Popen(
        [*system.enter, "python3", "/root/train.py", mark, "cc=reno"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            assert process.stdout.readline()
            assert ask(process, "connect")
            yield process
        finally:
            process.kill()


def ask(job: subprocess.Popen[str], line: str) -> Any:
    assert job.stdin
    assert job.stdout
    job.stdin.write(line + "\n")
    job.stdin.flush()
    return json.loads(job.stdout.readline())


def test_jobs_stay_attached_over_upgrade_and_package_removal(
    system: System, root: Path, backend: Backend, tmp_path: Path
) -> None:
    first = package(tmp_path, root / "root", __version__)
    second = package(tmp_path, root / "root", NEXT)
    install = ("apt-get", "install", "-y", "--no-install-recommends")
    before = files(root)
    system.run(*install, f"/root/{first}")
    system.run("mltcp", "load")
    rules = root / "etc/mltcp/agent.yaml"
    rules.write_text(rules.read_text() + "# the operator's\n")
    with trains(system, root) as job:
        system.run("mltcp", "attach", "train.py", "--job", "gpt2", "--kind", "all")

        def is_tagged() -> bool:
            job_ids = {each.name: each.id for each in backend.jobs()}
            return ask(job, "names") == ["mltcp"] and job_ids.get("gpt2") in [
                flow.job_id for flow in backend.flows()
            ]

        assert is_tagged()
        said = system.run(*install, f"/root/{second}")
        assert f"Unpacking mltcp-tools ({NEXT}-1) over ({__version__}-1)" in said
        assert system.run("mltcp", "--version") == f"mltcp {NEXT}\n"
        assert is_tagged()
        assert backend.status().build.startswith(__version__)
        assert rules.read_text().endswith("# the operator's\n")

        # The unit starts with this; nothing runs units in this system.
        unit = (root / "lib/systemd/system/mltcp-agent.service").read_text()
        (ensure,) = re.findall("ExecStartPre=.(/usr/bin/mltcp .*)", unit)
        system.run(*ensure.split())
        assert backend.status().build.startswith(NEXT)
        assert is_tagged()
        assert ask(job, "train 3 0.01 10000")

        said = system.run("apt-get", "remove", "-y", "mltcp-tools")
        assert "not everything" not in said
        assert ask(job, "names") == ["reno"]
        assert backend.status().loaded == ()
        assert ask(job, "train 3 0.01 10000")
    assert rules.exists()
    assert not (root / "usr/bin/mltcp").exists()
    system.run("apt-get", "purge", "-y", "mltcp-tools")
    assert files(root) - before == set()
