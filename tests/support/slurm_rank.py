# SPDX-License-Identifier: BSD-2-Clause
"""One of two ranks of a Slurm job: they exchange bursts, and say what their connection ran at last.

    slurm_rank.py PORT

The environment's RAN makes them go on until it runs that, and then for as many bursts as one can
learn from; without it they exchange a few.
"""

from __future__ import annotations

import os
import socket
import sys
import time

BURST = b"x" * 100_000  # less than a socket's buffer, so that both can send at once
ROUNDS = 15
PAUSE_S = 0.1
PATIENCE_S = 60.0


def connected(port: int) -> socket.socket:
    if os.environ["SLURM_PROCID"] == "0":
        with socket.create_server(("127.0.0.1", port)) as server:
            return server.accept()[0]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:  # the other one isn't there yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def congestion_control(sock: socket.socket) -> str:
    name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


def main() -> None:
    wanted = os.environ.get("RAN", "")
    deadline = time.monotonic() + PATIENCE_S
    with connected(int(sys.argv[1])) as sock:
        left = ROUNDS
        # Both go on for as long as either wants to: the last byte of a burst says so.
        while left:
            is_there = not wanted or congestion_control(sock) == wanted
            go_on = not is_there and time.monotonic() < deadline
            sock.sendall(BURST + (b"y" if go_on else b"n"))
            came = b""
            while len(came) <= len(BURST):
                came += sock.recv(1 << 20)
            left -= not go_on and came[-1:] == b"n"
            time.sleep(PAUSE_S)
        print(f"ran {congestion_control(sock)} at last", flush=True)


if __name__ == "__main__":
    main()
