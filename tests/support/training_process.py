# SPDX-License-Identifier: BSD-2-Clause
"""A program that trains in all but name: it computes, sends a burst to its peer, and begins anew.

Its peer is a thread of its own that discards what comes. Lines of standard input tell it what to
do, and each is answered by one line:

  connect                         open one more connection; the time (CLOCK_MONOTONIC) and its port
  train COUNT COMPUTE_S BYTES     run iterations over all connections; the seconds that took
  stop                            end these, which answers them; no answer of its own
  switched NAME                   wait until the latest connection runs NAME; the time
  cc                              the congestion control of each connection
  close                           close the latest connection
  fork                            start a copy that does nothing; its pid
  fork PROGRAM ARGUMENT           the same, but it becomes that program on SIGUSR1
  rename TITLE                    have that title in place of the arguments and the environment

The end of input ends it. With `hooks` as an argument iterations are told to the agent; with
`cc=NAME` both ends of its connections run that congestion control from the beginning.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

from renaming import rename  # beside this file

from mltcp_tools import hooks


def discard(peer: socket.socket) -> None:
    buffer = bytearray(1 << 16)
    with contextlib.suppress(OSError), peer:
        while peer.recv_into(buffer):
            pass


def serve(listener: socket.socket) -> None:
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=discard, args=(peer,), daemon=True).start()


def burst(connections: list[socket.socket], size: int) -> None:
    """Send size bytes over each connection, and wait until all of it is acknowledged."""
    for each in connections:
        each.sendall(bytes(size))
    for each in connections:
        while struct.unpack("i", fcntl.ioctl(each, termios.TIOCOUTQ, bytes(4)))[0]:
            time.sleep(0.0005)


def congestion_control(connection: socket.socket) -> str:
    name: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


def fork(program: list[str]) -> int:
    child = os.fork()
    if not child:
        signal.signal(signal.SIGUSR1, lambda *_: os.execvp(program[0], program))
        while True:
            signal.pause()
    return child


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    chosen = [each.removeprefix("cc=").encode() for each in sys.argv if each.startswith("cc=")]
    for name in chosen:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    job = hooks.Job() if "hooks" in sys.argv else None
    connections: list[socket.socket] = []
    print("ready", flush=True)
    for line in sys.stdin:
        what, *arguments = line.split()
        if what == "connect":
            connections.append(socket.create_connection(listener.getsockname()))
            for name in chosen:
                connections[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
            answer = f"{time.monotonic()} {connections[-1].getsockname()[1]}"
        elif what == "close":
            connections.pop().close()
            answer = "closed"
        elif what == "cc":
            answer = " ".join(map(congestion_control, connections))
        elif what == "fork":
            answer = str(fork(arguments))
        elif what == "rename":
            rename(arguments[0].encode())
            answer = "renamed"
        elif what == "switched":
            while congestion_control(connections[-1]) != arguments[0]:
                time.sleep(0.0005)
            answer = str(time.monotonic())
        elif what == "stop":
            continue
        else:
            begin = time.monotonic()
            for _ in range(int(arguments[0])):
                if select.select([sys.stdin], [], [], 0)[0]:
                    break
                with job.iteration() if job else contextlib.nullcontext():
                    time.sleep(float(arguments[1]))
                    burst(connections, int(arguments[2]))
            answer = str(time.monotonic() - begin)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
