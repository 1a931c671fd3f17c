# SPDX-License-Identifier: BSD-2-Clause
"""Calls the real NCCL at a known rhythm; without a GPU the calls return errors, which is no matter.

    python caller.py LIBRARY ITERATIONS BUCKETS COUNT PAUSE_S IDLE_S [COMMUNICATOR_RANKS]

With the last argument a communicator is created first. Prints `ready` and waits for a line, then
makes the calls, prints `done` and how long an iteration usually took, and waits for the end of its
input.
"""

from __future__ import annotations

import ctypes
import itertools
import statistics
import sys
import time

FLOAT32 = 7


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def main() -> None:
    nccl = ctypes.CDLL(sys.argv[1])
    iterations, buckets, count = (int(word) for word in sys.argv[2:5])
    pause_s, idle_s = float(sys.argv[5]), float(sys.argv[6])
    print("ready", flush=True)
    sys.stdin.readline()
    if sys.argv[7:]:
        handle, ranks = ctypes.c_void_p(), int(sys.argv[7])
        nccl.ncclCommInitRank(ctypes.byref(handle), ranks, UniqueId(), ranks - 1)
    begins_s = []
    for _ in range(iterations):
        begins_s.append(time.monotonic())
        for bucket in range(buckets):
            time.sleep(pause_s if bucket else idle_s)
            nccl.ncclAllReduce(None, None, ctypes.c_size_t(count), FLOAT32, 0, None, None)
    usual_s = statistics.median(b - a for a, b in itertools.pairwise(begins_s))
    print("done", usual_s, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
