# SPDX-License-Identifier: BSD-2-Clause
"""Slurm's own daemons on this host, and jobs of a user without privileges: they are attached by
themselves, and run as well without MLTCP."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.trainings import agent
from support.waiting import wait_for

from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.agent import rules
from mltcp_tools.live.observe.follower_state import read_follower_states

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch"))),
        reason="takes slurmctld, slurmd and munge: scripts/setup --full",
    ),
]
backend = backend_fixture(fresh_and_loaded)

MLTCP = Path(sys.executable).with_name("mltcp")
DEV_LOG = Path("/dev/log")
USER = 65534
SHIPPED = Path(rules.__file__).with_name("agent.yaml")
# The ranks are no training library's, and are all on this host.
RULE = yaml.safe_load(SHIPPED.read_text())["rules"][0] | {"kinds": "all"}
RULES = yaml.safe_dump({"rules": [RULE]})
RANK = Path(__file__).parents[1] / "support" / "slurm_rank.py"
CONF = """\
ClusterName=mltcp
SlurmctldHost={host}
SlurmUser=root
SlurmctldPort={port}
SlurmdPort={port_d}
AuthInfo=socket={folder}/munge.sock
ProctrackType=proctrack/cgroup
ReturnToService=2
MinJobAge=600
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SelectType=select/cons_tres
TaskProlog={folder}/mltcp-task-prolog
Epilog={folder}/epilog
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Cluster:
    """One host of Slurm, with everything it writes in a folder. owners: the users whose jobs an
    agent followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = os.environ | {"SLURM_CONF": f"{folder}/slurm.conf"}
        self.socket = folder / "agent.sock"
        self.owners: set[int] = set()
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(
            CONF.format(host=host, folder=folder, port=_free(), port_d=_free())
        )
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\nIgnoreSystemd=yes\n")
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        for name in ("task-prolog", "epilog"):
            hook = folder / f"mltcp-{name}"
            hook.write_text(self.run(str(MLTCP), "agent", "--print", f"slurm-{name}"))
            hook.chmod(0o755)
        # As at a site whose agent has another socket. Slurm runs it without a PATH.
        epilog = folder / "epilog"
        epilog.write_text(
            f"#!/bin/sh\nexport MLTCP_AGENT_SOCKET={self.socket}\nexec {folder}/mltcp-epilog\n"
        )
        epilog.chmod(0o755)
        self._log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._log.bind(str(folder / "log"))
        self._logged = ""

    def start(self) -> None:
        names = {"key": "key", "socket": "sock", "pid": "pid", "log": "log", "seed": "seed"}
        files = [f"--{name}-file={self.folder}/munge.{end}" for name, end in names.items()]
        files = [each.replace("--socket-file", "--socket") for each in files]
        self.run("munged", "--force", *files)
        self.run("slurmctld", "-i")
        # Its system log is this one's, in a mount namespace of its own.
        DEV_LOG.touch()
        mounted = f"mount --bind {self.folder}/log {DEV_LOG} && exec slurmd"
        self.run("unshare", "--mount", "sh", "-c", mounted)
        wait_for(self.is_idle, "the node")

    def is_idle(self) -> bool:
        return self.run("sinfo", "-h", "-o", "%t").strip() == "idle"

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout

    def batch(self, **environment: str) -> tuple[str, str]:
        """Run a job of two ranks to its end, as USER; its id, and what it printed."""
        script, out = self.folder / "job", self.folder / "out"
        out.touch()
        out.chmod(0o666)
        shutil.copy(RANK, self.folder)
        rank = f"/usr/bin/python3 {self.folder / RANK.name} {_free()}"
        script.write_text(f"#!/bin/sh\nexec srun -n 2 {rank}\n")
        environment |= {"MLTCP_AGENT_SOCKET": str(self.socket)}
        export = ",".join(["ALL", *(f"{name}={value}" for name, value in environment.items())])
        where = (f"--uid={USER}", f"-D{self.folder}", f"-o{out}")
        job = self.run(
            "sbatch", "--parsable", "-n2", f"--export={export}", *where, str(script)
        ).strip()
        wait_for(
            lambda: "COMPLETED" in self.shown(job), lambda: f"{self.shown(job)}{out.read_text()}"
        )
        return job, out.read_text()

    def shown(self, job: str) -> str:
        self.owners |= {each.uid for each in read_follower_states().values()}
        return self.run("scontrol", "show", "job", job)

    def logged(self) -> str:
        """The node's system log of MLTCP so far; slurmd's `su` writes there, too."""
        with contextlib.suppress(BlockingIOError):
            while True:
                entry = self._log.recv(1 << 16, socket.MSG_DONTWAIT).decode()
                _, ours, text = entry.partition(" mltcp: ")
                self._logged += text + "\n" if ours else ""
        return self._logged

    def stop(self) -> None:
        for name in ("slurmd", "slurmctld", "munge"):
            pid = self.folder / f"{name}.pid"
            if pid.exists():
                number = int(pid.read_text())
                os.kill(number, 15)
                wait_for(lambda n=number: not Path(f"/proc/{n}").exists(), f"{name} ends")
        self._log.close()
        if DEV_LOG.is_file():
            DEV_LOG.unlink()


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="mltcp-slurm-"))
    folder.chmod(0o755)  # for USER
    found = Cluster(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        shutil.rmtree(folder)
        for path in sorted(Path("/sys/fs/cgroup").glob("*/slurm*"), reverse=True):
            for each in sorted(path.glob("**/"), reverse=True):
                each.rmdir()


def test_ranks_of_a_user_are_attached_as_that_users_job(backend: Backend, cluster: Cluster) -> None:
    with agent(cluster.folder, RULES) as running:
        job, said = cluster.batch(RAN="mltcp")
        assert cluster.owners == {USER}
        assert said.count("ran mltcp at last") == 2, said
        # The batch script and both ranks have a prolog; the first of them tells.
        assert said.count(f"mltcp: connections become job slurm-{job}") == 1, said
        running.wait_for(f"slurm-{job} has ended")
        told = rf"slurm-{job}: (\d+ connections?|ended); \d+ iterations, .*"
        wait_for(lambda: re.search(told, cluster.logged()), f"{told} in {cluster.logged()}")

        job, said = cluster.batch(MLTCP_ATTACH="off")
        assert "mltcp" not in said
        assert f"slurm-{job}" not in running.said()
        wait_for(lambda: f"No agent follows job slurm-{job}" in cluster.logged(), "the reason")


def test_an_epilog_that_fails_says_why_and_drains_no_node(
    backend: Backend, cluster: Cluster
) -> None:
    epilog = cluster.folder / "mltcp-epilog"
    epilog.write_text(re.sub(r'"/.*/mltcp"', '"/nowhere/mltcp"', epilog.read_text()))
    with agent(cluster.folder, RULES):
        job, _ = cluster.batch()
        told = f"slurm-{job}: no summary, as `mltcp status jobs` failed (code 127)"
        wait_for(lambda: told in cluster.logged(), told)
        assert "/nowhere/mltcp" in cluster.logged()
        wait_for(cluster.is_idle, "the node is idle again")


def test_without_an_agent_jobs_run_as_if_nothing_were_there(cluster: Cluster) -> None:
    _, said = cluster.batch()
    assert said.count(" at last") == 2
    assert "mltcp" not in said
    wait_for(cluster.is_idle, "the node is idle again")
    assert cluster.logged() == ""
