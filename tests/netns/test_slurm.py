"""Slurm's own daemons on this host: jobs are attached by themselves, and run as well without it."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.trainings import agent
from support.waiting import wait_for

from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.agent import agent as _agent

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not all(map(shutil.which, ("slurmctld", "slurmd", "munged", "sbatch"))),
        reason="takes slurmctld, slurmd and munge: scripts/setup --full",
    ),
]
backend = backend_fixture(fresh_and_loaded)

HOOKS = Path(_agent.__file__).with_name("slurm")
RULES = "rules:\n  - {job: 'slurm-{cgroup:job_(\\d+)}', cgroup: ['job_*'], kinds: all}\n"
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
MinJobAge=60
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SelectType=select/cons_tres
TaskProlog={hooks}/task-prolog
Epilog={folder}/epilog
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Cluster:
    """One host of Slurm, with everything it writes in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        host = socket.gethostname().partition(".")[0]
        (folder / "slurm.conf").write_text(
            CONF.format(host=host, folder=folder, hooks=HOOKS, port=_free(), port_d=_free())
        )
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\nIgnoreSystemd=yes\n")
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        epilog = folder / "epilog"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        epilog.write_text(f"#!/bin/sh\nPATH={path}\n. {HOOKS}/epilog\n")
        epilog.chmod(0o755)
        self._environment = os.environ | {"SLURM_CONF": f"{folder}/slurm.conf"}

    def start(self) -> None:
        names = {"key": "key", "socket": "sock", "pid": "pid", "log": "log", "seed": "seed"}
        files = [f"--{name}-file={self.folder}/munge.{end}" for name, end in names.items()]
        files = [each.replace("--socket-file", "--socket") for each in files]
        self.run("munged", "--force", *files)
        self.run("slurmctld", "-i")
        self.run("slurmd")
        wait_for(lambda: "idle" in self.run("sinfo", "-h", "-o", "%t"), "the node")

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout

    def batch(self, **environment: str) -> tuple[str, str]:
        """Run a job of two ranks to its end; its id, and what it printed."""
        script = self.folder / "job"
        rank = f"{sys.executable} {RANK} {_free()}"
        script.write_text(f"#!/bin/sh\nexec srun -n 2 {rank}\n")
        environment |= {"MLTCP_AGENT_SOCKET": str(self.socket)}
        export = ",".join(["ALL", *(f"{name}={value}" for name, value in environment.items())])
        job = self.run(
            "sbatch", "--parsable", "-n2", f"--export={export}", f"-o{self.folder}/out", str(script)
        ).strip()
        wait_for(lambda: "COMPLETED" in self.shown(job), f"job {job}: {self.shown(job)}")
        return job, (self.folder / "out").read_text()

    def shown(self, job: str) -> str:
        return self.run("scontrol", "show", "job", job)

    def stop(self) -> None:
        for name in ("slurmd", "slurmctld", "munge"):
            pid = self.folder / f"{name}.pid"
            if pid.exists():
                number = int(pid.read_text())
                os.kill(number, 15)
                wait_for(lambda n=number: not Path(f"/proc/{n}").exists(), f"{name} ends")


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    try:
        found.start()
        yield found
    finally:
        found.stop()
        for path in sorted(Path("/sys/fs/cgroup").glob("*/slurm*"), reverse=True):
            for each in sorted(path.glob("**/"), reverse=True):
                each.rmdir()


def test_a_job_of_two_ranks_is_attached_by_itself(
    backend: Backend, cluster: Cluster, tmp_path: Path
) -> None:
    with agent(tmp_path, RULES) as running:
        job, said = cluster.batch(RAN="mltcp")
        assert said.count("ran mltcp at last") == 2, said
        assert f"mltcp: connections become job slurm-{job}" in said
        running.wait_for(f"slurm-{job} has ended")
        wait_for(lambda: "AdminComment" in cluster.shown(job), f"a comment: {cluster.shown(job)}")
        comment = re.search(r"AdminComment=(.*)", cluster.shown(job))
        assert comment
        assert re.fullmatch(
            rf"slurm-{job}: (\d+ connections?|ended); \d+ iterations, .*", comment[1]
        )

        job, said = cluster.batch(MLTCP_ATTACH="off")
        assert "mltcp" not in said
        assert f"slurm-{job}" not in running.said()


def test_without_an_agent_jobs_run_as_if_nothing_were_there(cluster: Cluster) -> None:
    job, said = cluster.batch()
    assert said.count(" at last") == 2
    assert "mltcp" not in said
    assert "AdminComment" not in cluster.shown(job)
    assert "idle" in cluster.run("sinfo", "-h", "-o", "%t")
