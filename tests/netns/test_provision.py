# SPDX-License-Identifier: BSD-2-Clause
"""vagrant/provision.sh network, in namespaces that have the machines' addresses; and what
kmod/after-install says on machines made up of mounts.

sender 192.168.57.11 --- 57.254 router 58.254 === 58.11 receiver
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
ADDRESSES = {
    "sender": ["192.168.57.11"],
    "router": ["192.168.57.254", "192.168.58.254"],
    "receiver": ["192.168.58.11"],
}

pytestmark = pytest.mark.skipif(
    shutil.which("ethtool") is None, reason="provision.sh would install ethtool"
)


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def run_in(namespace: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command there, with an empty /root that is gone afterwards."""
    script = 'mount -t tmpfs tmpfs /root && exec "$@"'
    return subprocess.run(
        [
            *("unshare", "--mount", "nsenter", f"--net=/run/netns/{namespace}"),
            *("bash", "-c", script, "bash", *command),
        ],
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def machines() -> Iterator[dict[str, str]]:
    """Namespaces by role, joined by two links, with addresses and nothing else."""
    prefix = f"mltcp-provision-{secrets.token_hex(3)}"
    names = {role: f"{prefix}-{role}" for role in ADDRESSES}
    try:
        for name in names.values():
            ip("netns", "add", name)
        for number, (role, near, far) in enumerate(
            [("sender", "lan0", "lan0"), ("receiver", "lan0", "lan1")]
        ):
            peer = ("peer", "name", far, "netns", names["router"])
            ip("link", "add", near, "netns", names[role], "type", "veth", *peer)
            for name, device, address in (
                (names[role], near, ADDRESSES[role][0]),
                (names["router"], far, ADDRESSES["router"][number]),
            ):
                ip("-n", name, "address", "add", f"{address}/24", "dev", device)
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def provision(machines: dict[str, str], role: str, *settings: str) -> None:
    script = str(CHECKOUT / "vagrant/provision.sh")
    done = run_in(machines[role], "bash", script, "network", role, *settings)
    assert done.returncode == 0, done.stderr


def test_the_network_is_routed_and_has_a_bottleneck(machines: dict[str, str]) -> None:
    # The second time, with other settings, changes what is there.
    for rate, queue in (("200mbit", "30kb"), ("20mbit", "15kb")):
        for role in machines:
            provision(machines, role, rate, queue)
    shown = ip("netns", "exec", machines["router"], "tc", "-j", "qdisc", "show", "dev", "lan1")
    qdiscs = json.loads(shown)
    assert [qdisc["kind"] for qdisc in qdiscs] == ["tbf"]
    assert (qdiscs[0]["options"]["rate"], qdiscs[0]["options"]["limit"]) == (2_500_000, 15_360)
    for role, destination in (("sender", "192.168.58.0/24"), ("receiver", "192.168.57.0/24")):
        routes = json.loads(ip("-n", machines[role], "-j", "route", "show", destination))
        assert [route["gateway"] for route in routes] == [
            ADDRESSES["router"][0 if role == "sender" else 1]
        ]
        features = run_in(machines[role], "ethtool", "-k", "lan0").stdout
        assert "tcp-segmentation-offload: off" in features
        assert "generic-segmentation-offload: off" in features
        assert "generic-receive-offload: off" in features
    # A connection from end to end, through the router.
    server = "import socket; s = socket.create_server(('', 5301)); print('up', flush=True); "
    server += "print(s.accept()[1][0])"
    client = "import socket; socket.create_connection(('192.168.58.11', 5301), 10)"
    inside = [f"--net=/run/netns/{machines[role]}" for role in ("receiver", "sender")]
    with subprocess.Popen(
        ["nsenter", inside[0], "python3", "-c", server], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            subprocess.run(["nsenter", inside[1], "python3", "-c", client], check=True)
            assert process.stdout.readline() == "192.168.57.11\n"
        finally:
            process.kill()


def test_a_machine_without_the_address_is_told_so(machines: dict[str, str]) -> None:
    script = str(CHECKOUT / "vagrant/provision.sh")
    done = run_in(machines["sender"], "bash", script, "network", "router")
    assert done.returncode == 3
    assert "no interface has an address in 192.168.58.0/24" in done.stderr


# A module that is installed for the running kernel, as modinfo reports it, and a firmware with
# secure boot, as the kernel shows it, below a mount namespace's own /sys.
MACHINE = """
set -eu
mkdir "$1/bin"
cat >"$1/bin/modinfo" <<'END'
#!/bin/sh
case $* in
"-n tcp_mltcp") echo /lib/modules/x/tcp_mltcp.ko ;;
"-F srcversion tcp_mltcp") echo NEW ;;
-F\\ signer*) echo "$SIGNER" ;;
esac
END
cat >"$1/bin/mokutil" <<'END'
#!/bin/sh
echo "$2 is $ENROLLED"
END
chmod +x "$1"/bin/*
mount -t tmpfs tmpfs /sys
mkdir -p /sys/module/tcp_mltcp /sys/firmware/efi/efivars /var/lib/dkms
[ -z "$LOADED" ] || echo "$LOADED" >/sys/module/tcp_mltcp/srcversion
printf '\\6\\0\\0\\0%b' "\\\\$SECURE" \
>/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
mount -t tmpfs tmpfs /var/lib/dkms
touch /var/lib/dkms/mok.pub
PATH=$1/bin:$PATH exec "$2"
"""


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({}, []),
        ({"LOADED": "NEW"}, []),
        ({"LOADED": "OLD"}, ["another build is loaded", "modprobe -r tcp_mltcp"]),
        ({"SECURE": "1", "ENROLLED": "already enrolled"}, []),
        ({"SECURE": "1", "ENROLLED": "not enrolled"}, ["mokutil --import /var/lib/dkms/mok.pub"]),
        ({"SECURE": "1", "SIGNER": ""}, ["is not signed", "dpkg-reconfigure tcp-mltcp-dkms"]),
    ],
)
def test_what_is_left_to_do_after_installing_is_said(
    tmp_path: Path, machine: dict[str, str], said: list[str]
) -> None:
    settings = {
        "LOADED": "",
        "SECURE": "0",
        "SIGNER": "DKMS",
        "ENROLLED": "",
        "PATH": "/usr/bin:/bin:/sbin",
    }
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            MACHINE,
            "sh",
            tmp_path,
            CHECKOUT / "kmod/after-install",
        ],
        env=settings | machine,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if not said:
        assert done.stdout == ""
    for sentence in said:
        assert sentence in done.stdout
