"""`mltcp fleet` on hosts that run sshd: namespaces with agents and records of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from netns.apart import Apart, apart
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.trainings import Agent, Training, training
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.kernel.backends.base import Backend

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(SSHD is None, reason="takes openssh-server: scripts/setup --full"),
]
backend = backend_fixture(fresh_and_loaded)

MLTCP = Path(sys.executable).with_name("mltcp")
RULES = "rules: [{job: gpt2, command: trains-on-%s, kinds: all}]\n"


class Fleet:
    """Two hosts, `one` with a job and `two`, and `down`, which nobody answers at.

    It runs `mltcp fleet` by ssh, to `sshd` of each.
    """

    def __init__(self, folder: Path, hosts: dict[str, Apart], job: Training) -> None:
        self.job = job
        lines = [f"UserKnownHostsFile {folder}/known", f"IdentityFile {folder}/key"]
        lines += ["StrictHostKeyChecking accept-new", "BatchMode yes", "User root"]
        for name, host in hosts.items():
            lines += [f"Host {name}", f"  HostName {host.address}"]
        lines += ["Host down", "  HostName 127.0.0.1", "  Port 1"]
        (folder / "config").write_text("\n".join(lines))
        self._options = [f"--ssh=ssh -F {folder}/config", f"--mltcp={MLTCP}", "--json"]

    def run(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Its exit code, what it says of each host, and its error."""
        command = [MLTCP, "fleet", *words, *self._options]
        done = subprocess.run(command, capture_output=True, text=True)
        seen = {each["host"]: each for each in json.loads(done.stdout)}
        return done.returncode, seen, done.stderr


@contextlib.contextmanager
def daemon(host: Apart, folder: Path) -> Iterator[None]:
    """Sshd of that host, which lets in whoever has the folder's key."""
    options = {
        "ListenAddress": host.address,
        "AuthorizedKeysFile": f"{folder}/key.pub",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
    }
    words = [f"-o{name}={value}" for name, value in options.items()]
    Path("/run/sshd").mkdir(exist_ok=True)
    command = [*host.enter, str(SSHD), "-D", "-e", "-f", "/dev/null", "-h", f"{folder}/key", *words]
    with (
        open(folder / f"{host.address}.log", "w") as log,
        subprocess.Popen(command, stderr=log) as process,
    ):
        try:
            said = Path(log.name)
            wait_for(lambda: "listening" in said.read_text(), "sshd", beside=process)
            yield
        finally:
            process.terminate()


@pytest.fixture
def fleet(backend: Backend, tmp_path: Path) -> Iterator[Fleet]:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    with contextlib.ExitStack() as stack:
        hosts, _ = stack.enter_context(apart(tmp_path, "one", "two"))
        for name, host in hosts.items():
            folder = tmp_path / name
            folder.mkdir()
            stack.enter_context(daemon(host, tmp_path))
            started = Agent(folder, RULES % name, host.enter, ["--metrics", "127.0.0.1:9477"])
            stack.callback(started.process.wait, PATIENCE_S)
            stack.callback(started.process.terminate)
            started.wait_for("Following")
        job = stack.enter_context(training("trains-on-one", "cc=reno", through=hosts["one"].enter))
        job.ask("connect")
        wait_for(lambda: job.ccs() == ["mltcp"], "the job is attached")
        yield Fleet(tmp_path, hosts, job)


def test_the_fleet_is_seen_and_unloaded_over_ssh(backend: Backend, fleet: Fleet) -> None:
    def both_publish() -> bool:
        _, seen, _ = fleet.run("--over-ssh", "one", "two")
        return [each["name"] for each in seen["one"]["jobs"]] == ["gpt2"]

    wait_for(both_publish, "the job among what the agents publish")
    code, seen, said = fleet.run("--over-ssh", "one", "two")
    assert (code, said) == (0, "")
    assert seen["one"]["build"] == seen["two"]["build"] == backend.build_here()
    code, seen, said = fleet.run("--over-ssh", "one", "down", "two")
    assert code == 1
    assert "1 of 3 hosts not well: down" in said
    assert "Connection refused" in seen["down"]["alarms"][0]

    code, seen, _ = fleet.run("unload", "--dry-run", "one")
    assert code == 0
    assert seen["one"]["left"]
    assert fleet.job.ccs() == ["mltcp"]
    # The hosts share a kernel, so they take turns.
    for _ in range(2):  # what is done is done: the second time nothing is there
        code, seen, said = fleet.run("unload", "--at-once=1", "one", "two")
        assert (code, said) == (0, "")
        assert [each["left"] for each in seen.values()] == [[], []]
        assert fleet.job.ccs() == ["reno"]
        assert backend.status().loaded == ()
    code, seen, said = fleet.run("unload", "down")
    assert code == 1
    assert "without an answer: down" in said
