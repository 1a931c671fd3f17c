"""The controller: cores go to the inference server as its load asks, the rest to training.

Cores are lent in UNITS; every tick the guard of FaPES (inference.Predictive) says how many the
server is to have. Training has the others: for each, an agent of torchrun with one worker is member
of one elastic job. When a change has lasted for HOLD_S, and all members have met, agents join or
leave; torchrun's rendezvous tells the others, and all workers go on together from their last
checkpoint. What dies is started again: an agent alone, the first one, who keeps the rendezvous,
with all others, and all of them if training hangs. Everything the controller starts has a session
of its own: if it is killed, server and training go on with what they have, and `stop` ends them
later.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mltcp_tools.clusters.fapes.inference import TICK_S, Predictive
from mltcp_tools.clusters.live.shares import CpuGroup
from mltcp_tools.errors import BusyError, MltcpError
from mltcp_tools.kernel.host.files import replace_file
from mltcp_tools.kernel.host.programs import module_command

UNITS = 4
HOLD_S = 10.0
STALL_S = 45.0
"""Training that has done no step for so long hangs: torchrun's rendezvous may, when a member dies
while others meet."""
STATE = "state.json"
_RENDEZVOUS = {
    "join_timeout": 300,
    "last_call_timeout": 3,
    "keep_alive_interval": 2,
    "keep_alive_max_attempt": 3,
    "read_timeout": 300,
}
"""Of torchrun, seconds: for a start on a busy host; for others to join who come at the same time;
between an agent's signs of life, of which so many may be missing."""
_OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""For torchrun: every meeting of agents has a store of its own. In one that all of them share,
who joins later waits for an address that the first agent wrote for the first meeting alone, and
who meets again finds addresses of those who have left (pytorch's issue 135712)."""


class Controller:
    """One live run in a folder. cores: what is shared. service_s: of a request with a unit."""

    def __init__(self, folder: Path, cores: float, service_s: float = 0.03) -> None:
        self._folder, self._unit = folder, cores / UNITS
        self._groups = {name: CpuGroup(name) for name in ("inference", "training")}
        self._port, self._meeting = _free_port(), _free_port()
        self._agents: list[subprocess.Popen[bytes]] = []
        self._others: list[subprocess.Popen[bytes]] = []
        # A compressed trace rises and falls faster than a day does.
        self._scaler = Predictive(service_s, slots=1, hold_s=HOLD_S, stable_s=2 * HOLD_S)
        self._log = (folder / "controller.jsonl").open("w", buffering=1)
        self._workers: dict[int, list[tuple[int, int | None]]] = {}
        self._asked = UNITS - 1
        self._since = 0.0
        self._revived = 0
        self._seen, self._moved = -1, time.monotonic()

    def run(self, trace: str, seconds: float, faster: float) -> None:
        """Serve the trace for so long. Ends what it started however it ends, but by SIGKILL."""
        try:
            self._lend(1)
            self._server = self._serve()
            self._resize(UNITS - 1)
            self._until_ready()
            load = [trace, str(self._port), str(faster), str(seconds)]
            client = self._start(
                None,
                module_command("mltcp_tools.clusters.live.load", *load, self._file("load.jsonl")),
            )
            before, began = 0, time.monotonic()
            for tick in range(int(seconds / TICK_S)):
                time.sleep(max(0.0, began + (tick + 1) * TICK_S - time.monotonic()))
                self._revive()
                try:
                    seen = self._load()
                except OSError:
                    # A server that was just started isn't there yet.
                    continue
                # A new one counts from 0.
                arrived, before = max(0, seen["arrived"] - before), seen["arrived"]
                have = UNITS - self._asked
                wanted = self._scaler.wanted((tick + 1) * TICK_S, seen["inside"], arrived, have)
                self._lend(max(1, min(UNITS - 1, wanted)))
            if client.wait(timeout=120):
                raise MltcpError(
                    f"What sends the requests ended before its time; see"
                    f" {self._folder / 'output.log'}."
                )
        finally:
            stop(self._folder)

    def _lend(self, units: int) -> None:
        """So many units to inference, the others to training: cores at once, workers later."""
        cores = {
            "inference": self._groups["inference"].limit(units * self._unit),
            "training": self._groups["training"].limit((UNITS - units) * self._unit),
        }
        line = {"time": time.time(), "units": units, "cores": cores, "workers": len(self._agents)}
        line["revived"] = self._revived
        self._log.write(json.dumps(line) + "\n")
        if UNITS - units != self._asked:
            self._asked, self._since = UNITS - units, time.monotonic()
        elif self._agents and len(self._agents) != self._asked and self._met():
            # Fewer soon, as they would share what one needs; more only when it lasts.
            less = self._asked < len(self._agents)
            if time.monotonic() - self._since >= (HOLD_S / 2 if less else HOLD_S):
                self._resize(self._asked)

    def _met(self) -> bool:
        """Return whether training's last step was one of all agents that there are: who goes while
        the others still meet leaves them waiting for him."""
        steps = self._folder / "training.jsonl"
        lines = steps.read_text(encoding="utf-8").splitlines() if steps.is_file() else []
        with contextlib.suppress(IndexError, ValueError):
            return bool(json.loads(lines[-1])["world"] == len(self._agents))
        return False

    def _resize(self, workers: int) -> None:
        """Agents join or leave until there are so many. The first one, who keeps the rendezvous,
        always stays."""
        while len(self._agents) < workers:
            # Whoever joins needs a while.
            self._moved = time.monotonic()
            command = self._agent(first=not self._agents)
            self._agents.append(self._start("training", command, _OWN_STORE))
        leaving, self._agents = self._agents[workers:], self._agents[:workers]
        # All at once: torchrun's rendezvous may hang where one goes while others meet again.
        for agent in leaving:
            agent.send_signal(signal.SIGTERM)
        for agent in leaving:
            try:
                agent.wait(timeout=20)
            except subprocess.TimeoutExpired:
                for pid in [*_children(agent.pid), agent.pid]:
                    _kill(pid)
                agent.wait()

    def _revive(self, *, begun: bool = True) -> None:
        """Start again what died since the last tick. begun: training has, and should go on."""
        if self._server.poll() is not None:
            self._server, self._revived = self._serve(), self._revived + 1
        steps, now = self._folder / "training.jsonl", time.monotonic()
        done = steps.stat().st_size if steps.is_file() else 0
        if done != self._seen:
            self._seen, self._moved = done, now
        dead = [agent for agent in self._agents if agent.poll() is not None]
        hangs = begun and now - self._moved > STALL_S
        if dead or hangs:
            self._moved = now
            self._revived += len(dead) + hangs
            for agent in list(self._agents) if hangs or self._agents[0] in dead else dead:
                self._agents.remove(agent)
                for pid, began in [
                    (agent.pid, _began(agent.pid)),
                    *self._workers.get(agent.pid, []),
                ]:
                    if _began(pid) == began:
                        _kill(pid)
                agent.wait()
            self._resize(self._asked)
        for agent in self._agents:
            # Whoever kills an agent leaves its worker, who is nobody's child then.
            own = [(pid, _began(pid)) for pid in _children(agent.pid)]
            self._workers[agent.pid] = own or self._workers.get(agent.pid, [])

    def _serve(self) -> subprocess.Popen[bytes]:
        command = module_command("mltcp_tools.clusters.live.server", f"{self._port}")
        return self._start("inference", command)

    def _agent(self, *, first: bool) -> list[str]:
        """torchrun's agent of one worker, member of a job of 1 to UNITS - 1."""
        conf = ",".join(f"{key}={value}" for key, value in _RENDEZVOUS.items())
        options = [
            f"--nnodes=1:{UNITS - 1}",
            "--nproc-per-node=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{self._meeting}",
            f"--rdzv-conf={conf},is_host={int(first)}",
            "--rdzv-id=mltcp-live",
            "--local-addr=127.0.0.1",
            # Every change of members counts as a restart.
            "--max-restarts=1000000",
        ]
        script = [str(Path(__file__).parent / "training.py"), self._file("")]
        return module_command("torch.distributed.run", *options, *script)

    def _start(
        self, group: str | None, command: list[str], more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """more: for its environment."""
        out = (self._folder / "output.log").open("ab")
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | (more or {}),
        )
        self._others.append(process)
        if group is not None:
            self._groups[group].add(process.pid)
        pids = [[each.pid, _began(each.pid)] for each in self._others]
        # Whoever ends this later, after a kill at any moment, needs it whole.
        replace_file(self._folder / STATE, json.dumps({"processes": pids}).encode())
        return process

    def _load(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/load", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _until_ready(self) -> None:
        for _ in range(600):
            self._revive(begun=False)
            # A server that was just started isn't there yet.
            with contextlib.suppress(OSError):
                self._load()
                if (self._folder / "training.jsonl").is_file():
                    return
            time.sleep(0.2)
        raise MltcpError(f"Server or training didn't start; see {self._folder / 'output.log'}.")

    def _file(self, name: str) -> str:
        return str(self._folder / name)


def stop(folder: Path) -> None:
    """End what a controller in that folder started, if it is still there, and its groups."""
    state = folder / STATE
    if state.is_file():
        for pid, began in json.loads(state.read_text(encoding="utf-8"))["processes"]:
            # A number may have been given to another process meanwhile.
            if _began(pid) == began:
                _kill(pid)
        state.unlink()
    for name in ("inference", "training"):
        # torchrun's workers have sessions of their own, but not groups.
        group = CpuGroup(name, there=True)
        group.kill()
        group.remove()


def require_unused(folder: Path) -> None:
    """Raise BusyError where a controller in that folder left processes."""
    if (folder / STATE).is_file():
        raise BusyError(f"{folder} has a live run; end it with `mltcp cluster live --stop`.")


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _began(pid: int) -> int | None:
    """Return the start of a process, clock ticks since boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
