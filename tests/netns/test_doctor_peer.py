# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts, which are namespaces, compared by `mltcp doctor --peer`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from netns.apart import Apart, apart
from netns.backends_here import backend_fixture, fresh_and_loaded

from mltcp_tools.kernel.backends.base import Backend

backend = backend_fixture(fresh_and_loaded)

TOOL = [sys.executable, "-m", "mltcp_tools.cli.main"]
SERVER = (
    "import socket, sys; server = socket.create_server((sys.argv[1], 0));"
    " print(server.getsockname()[1], flush=True);"
    " held = server.accept(); print(flush=True); sys.stdin.read()"
)
CLIENT = (
    "import socket, sys; held = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
    " print(flush=True); sys.stdin.read()"
)


@contextlib.contextmanager
def python(program: str, *words: str, through: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    """A Python program that runs until its stdin ends; its pid, and its first line."""
    command = [*through, sys.executable, "-c", program, *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.communicate()


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Apart]:
    with apart(tmp_path, "other") as (hosts, ssh):
        monkeypatch.setenv("MLTCP_SSH", ssh)
        monkeypatch.setenv("MLTCP_REMOTE", " ".join(TOOL))
        yield hosts["other"]


def run(other: Apart, *command: str) -> None:
    subprocess.run([*other.enter, *command], check=True, capture_output=True)


def compared() -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the findings."""
    command = [*TOOL, "doctor", "--peer", "other", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return done.returncode, json.loads(done.stdout)["checks"]


def of(checks: list[dict[str, Any]], name: str) -> list[tuple[str, str]]:
    return [(each["state"], each["found"] + each["fix"]) for each in checks if each["name"] == name]


def test_hosts_alike_have_nothing_to_mend(backend: Backend, other: Apart) -> None:
    code, checks = compared()
    assert code == 0
    assert {each["state"] for each in checks} == {"ok"}, checks
    ((_, path),) = of(checks, "path")
    assert f"to {other.address}: " in path
    assert "eth0 (MTU 1500" in path


def test_other_mtu_and_options_turned_off_are_named(backend: Backend, other: Apart) -> None:
    run(other, "ip", "link", "set", "eth0", "mtu", "1400")
    run(other, "sysctl", "-w", "net.ipv4.tcp_sack=0", "net.ipv4.tcp_timestamps=0")
    code, checks = compared()
    ((state, path),) = of(checks, "path")
    assert (code, state) == (0, "warning")
    assert "MTU 1500" in path
    assert "MTU 1400" in path
    for option in ("sack", "timestamps"):
        assert f"sysctl -w net.ipv4.tcp_{option}=1" in path
    assert path.count("is off on other;") == 2


def test_path_that_drops_full_packets_is_found(backend: Backend, other: Apart) -> None:
    """As a switch with a smaller MTU does: the ends agree on more than it carries."""
    link, here = f"mltcp{other.pid}", f"{other.address.rpartition('.')[0]}.1"
    subprocess.run(["ethtool", "-K", link, "tso", "off", "gso", "off"], check=True)
    run(other, "ip", "link", "set", "eth0", "mtu", "1400")
    run(other, "ip", "route", "replace", here, "dev", "eth0", "advmss", "1460")
    code, checks = compared()
    ((state, path),) = of(checks, "path")
    assert (code, state) == (3, "missing")
    assert "Full packets don't arrive" in path


def test_peer_that_takes_no_connections_is_said(backend: Backend, other: Apart) -> None:
    run(other, "ip", "rule", "add", "prio", "1", "from", other.address, "prohibit")
    code, checks = compared()
    ((state, path),) = of(checks, "path")
    assert (code, state) == (3, "missing")
    assert other.address in path


def test_job_that_its_peer_lacks_is_named(backend: Backend, other: Apart) -> None:
    with (
        python(SERVER, other.address, through=other.enter) as (server, port),
        python(CLIENT, other.address, port) as (client, _),
    ):
        attach = ("attach", "--job", "one", "--kind", "all")
        subprocess.run([*TOOL, *attach, str(client)], check=True)
        code, checks = compared()
        ((state, said),) = of(checks, "job")
        assert (code, state) == (0, "warning")
        assert "one isn't attached on other" in said
        run(other, *TOOL, *attach, str(server))
        assert of(compared()[1], "job") == []
        run(other, *TOOL, "detach", "one")
        subprocess.run([*TOOL, "detach", "one"], check=True)


def test_peer_of_another_version_is_compared_no_further(
    backend: Backend, other: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = 'import json; print(json.dumps({"event": "facts", "version": "0.0.1"}), flush=True)'
    monkeypatch.setenv("MLTCP_REMOTE", f"{sys.executable} -c '{say}'")
    code, (check,) = compared()
    assert (code, check["name"], check["state"]) == (3, "version", "missing")


def test_host_that_ssh_does_not_reach_is_named(other: Apart) -> None:
    command = [*TOOL, "doctor", "--peer", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr == "mltcp: error: nowhere: no host nowhere\n"
