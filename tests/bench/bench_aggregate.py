# SPDX-License-Identifier: BSD-2-Clause
"""The cost of one core of an aggregator: nanoseconds per packet, by the kernel's own test run.

Run as root: .venv/bin/python tests/bench/bench_aggregate.py. Four workers' packets go through the
XDP program one by one, round after round: of four, three are added up, and one is answered too.
"""

from __future__ import annotations

import statistics
import struct

from cffi import FFI
from pyroute2 import netns

from mltcp_tools.collectives.library import library, secret_of
from mltcp_tools.collectives.programs import KernelJob, Peer, Programs
from mltcp_tools.lab.testbed.namespaces import inside

NAMESPACE = "mltcp-bench-aggregate"
KEY, GENERATION = 0x1234, 1
SECRET = bytes(range(16))
WORDS = struct.Struct("<IBBHQIIIIIIHHhH")
WORKERS = 4
DROP, REDIRECT = 1, 4  # enum xdp_action
secret = secret_of(SECRET)


def check(packet: bytes) -> int:
    """The key with which a worker signs the packet."""
    lib, own = library()
    room = own.new("struct agg_packet *")
    own.memmove(room, packet, len(packet))
    return int(lib.check_of(own.addressof(secret), room))


def frame(values: int, peer: Peer, worker: int, number: int) -> bytes:
    """A worker's packet of a round of slot 0."""
    head = WORDS.pack(
        *(0x31474C4D, 1, 0, worker, KEY, 0, GENERATION),
        *(number, 1, number, number + 1, 0, values, -32768, 0),
    )
    body = bytes(range(256)) * 16
    packet = head + bytes(8) + body[: 4 * values]
    packet = head + struct.pack("<Q", check(packet)) + packet[56:]
    udp = struct.pack("!HHHH", peer.port, peer.local_port, 8 + len(packet), 0) + packet
    address = bytes(map(int, peer.address.split(".")))
    local = bytes(map(int, peer.local_address.split(".")))
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + address + local
    return peer.local_mac + peer.mac + b"\x08\x00" + ip + udp


ffi = FFI()
ffi.cdef("""
struct bpf_test_run_opts {
    size_t sz;
    const void *data_in; void *data_out;
    uint32_t data_size_in, data_size_out;
    const void *ctx_in; void *ctx_out;
    uint32_t ctx_size_in, ctx_size_out, retval;
    int repeat;
    uint32_t duration, flags, cpu, batch_size;
};
int bpf_prog_test_run_opts(int program, struct bpf_test_run_opts *opts);
""")


def run(program: int, data: bytes) -> tuple[int, int]:
    """(what the program returned, nanoseconds)."""
    lib = ffi.dlopen("libbpf.so.1")
    kept, out = ffi.from_buffer(data), ffi.new("char[8192]")
    opts = ffi.new(
        "struct bpf_test_run_opts *",
        {
            "sz": ffi.sizeof("struct bpf_test_run_opts"),
            "data_in": kept,
            "data_size_in": len(data),
            "data_out": out,
            "data_size_out": 8192,
            "repeat": 1,
        },
    )
    if lib.bpf_prog_test_run_opts(program, opts):
        raise OSError(ffi.errno, "bpf_prog_test_run_opts failed")
    return opts.retval, opts.duration


def measure(values: int, rounds: int = 200) -> tuple[float, float]:
    """Nanoseconds of a packet that is added up, and of one that is answered too (medians)."""
    programs = Programs([], "xdp", 16)
    try:
        peers = [
            Peer(f"10.0.0.{w + 1}", 5000, "10.0.0.254", 17749, b"\2" * 6, b"\4" * 6, 1)
            for w in range(WORKERS)
        ]
        programs.add(KernelJob(0, KEY, SECRET, GENERATION, 0, 16, values, peers))
        took: dict[int, list[int]] = {DROP: [], REDIRECT: []}
        for number in range(rounds):
            for worker, peer in enumerate(peers):
                said, ns = run(programs.program(), frame(values, peer, worker, number))
                took[said].append(ns)
        assert (len(took[DROP]), len(took[REDIRECT])) == ((WORKERS - 1) * rounds, rounds)
        return statistics.median(took[DROP]), statistics.median(took[REDIRECT])
    finally:
        programs.close()


def main() -> None:
    netns.create(NAMESPACE)
    try:
        with inside(NAMESPACE):
            for values in (256, 352):
                added, answered = measure(values)
                mean = (added * (WORKERS - 1) + answered) / WORKERS
                print(
                    f"{values} values: added {added:.0f} ns, answered {answered:.0f} ns,"
                    f" {values * 32 / mean:.1f} Gbit/s of gradients"
                )
    finally:
        netns.remove(NAMESPACE)


if __name__ == "__main__":
    main()
