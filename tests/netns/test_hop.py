# SPDX-License-Identifier: BSD-2-Clause
"""A hop's stamp in single packets, run through the program by the kernel, without a network."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from mltcp_tools.kernel.native.objects import build_object

KIND, ID = 254, b"MF"
NOTHING, ASKS, FIRST_WORD = 0, 1, 2
ADDRESSES = {4: IP(src="10.0.0.1", dst="10.0.0.2"), 6: IPv6(src="fd00::1", dst="fd00::2")}

pytestmark = pytest.mark.bpf


@pytest.fixture
def hop() -> Iterator[Path]:
    """The loaded program, pinned; of a link that nothing waits for."""
    pinned = Path(f"/sys/fs/bpf/mltcp-test-hop-{uuid.uuid4().hex[:8]}")
    load = ["bpftool", "prog", "load", str(build_object("hop")), str(pinned)]
    subprocess.run(load, check=True, capture_output=True)
    yield pinned
    pinned.unlink()


def packet(version: int, options: list[Any]) -> Packet:
    made = Ether() / ADDRESSES[version] / TCP(sport=5001, dport=5002, options=options) / b"payload"
    return Ether(bytes(made))  # with its checksums


def option(stamp: int, echo: int = 7) -> tuple[int, bytes]:
    return (KIND, ID + stamp.to_bytes(2, "big") + echo.to_bytes(2, "big"))


def passed(hop: Path, made: Packet, folder: Path) -> Packet:
    """The packet behind the hop."""
    (folder / "in").write_bytes(bytes(made))
    run = ["bpftool", "prog", "run", "pinned", str(hop)]
    files = ["data_in", str(folder / "in"), "data_out", str(folder / "out")]
    subprocess.run([*run, *files], check=True, capture_output=True)
    return Ether((folder / "out").read_bytes())


def stamp_of(made: Packet) -> int:
    (data,) = [value for kind, value in made[TCP].options if kind == KIND]
    return int.from_bytes(data[2:4], "big")


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("before", [[], [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]])
def test_a_packet_that_asks_is_told(
    hop: Path, tmp_path: Path, version: int, before: list[Any]
) -> None:
    behind = passed(hop, packet(version, [*before, option(ASKS)]), tmp_path)
    assert stamp_of(behind) == FIRST_WORD
    # Nothing else has changed, and the checksum is right.
    assert bytes(behind) == bytes(packet(version, [*before, option(FIRST_WORD)]))


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(
    "options",
    [[option(NOTHING)], [option(60_000)], [("Timestamp", (1, 2))], [], [(KIND, b"XX\0\1\0\0")]],
)
def test_other_packets_are_left_alone(
    hop: Path, tmp_path: Path, version: int, options: list[Any]
) -> None:
    """One that doesn't ask, one that a worse hop has told more, one without the option."""
    made = packet(version, options)
    assert bytes(passed(hop, made, tmp_path)) == bytes(made)
