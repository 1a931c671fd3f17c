# SPDX-License-Identifier: BSD-2-Clause
"""A rank of two that reduce buffers on a GPU through NCCL, as a training job does.

    python nccl_rank.py LIBRARY RANK ID_FILE ITERATIONS COUNT IDLE_S

Both ranks may use the same GPU: told to be on different hosts (NCCL_HOSTID), they don't notice, and
speak over sockets. Prints `ready`, and at the end how long an iteration took.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

FLOAT32, SUM = 7, 0


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def check(code: int, what: str) -> None:
    if code:
        sys.exit(f"{what} failed with {code}")


def unique_id(nccl: Any, rank: int, file: Path) -> UniqueId:
    """Made by rank 0, and handed on in a file."""
    made = UniqueId()
    if rank == 0:
        check(nccl.ncclGetUniqueId(ctypes.byref(made)), "ncclGetUniqueId")
        scratch = file.with_suffix(".part")
        scratch.write_bytes(bytes(made))
        scratch.rename(file)
    while not file.exists():
        time.sleep(0.05)
    return UniqueId.from_buffer_copy(file.read_bytes())


def buffer(cuda: Any, size: int) -> ctypes.c_void_p:
    """Memory of the first GPU, in a context that is this thread's from now on."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)), "cuMemAlloc")
    return memory


def main() -> None:
    library, rank, file = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    iterations, count, idle_s = int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
    os.environ["NCCL_HOSTID"] = f"host-{rank}"
    cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(library)
    memory, communicator = buffer(cuda, 4 * count), ctypes.c_void_p()
    made = unique_id(nccl, rank, file)
    check(nccl.ncclCommInitRank(ctypes.byref(communicator), 2, made, rank), "ncclCommInitRank")
    print("ready", flush=True)
    begin_s = time.monotonic()
    for _ in range(iterations):
        time.sleep(idle_s)
        elements = ctypes.c_size_t(count)
        arguments = (memory, memory, elements, FLOAT32, SUM, communicator, None)
        check(nccl.ncclAllReduce(*arguments), "ncclAllReduce")
        check(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
    print((time.monotonic() - begin_s) / iterations, flush=True)
    check(nccl.ncclCommDestroy(communicator), "ncclCommDestroy")


if __name__ == "__main__":
    main()
