# SPDX-License-Identifier: BSD-2-Clause
"""The structs of kmod/mltcp_rate.h, declared to Python without a compiler, as in uapi.py."""

from __future__ import annotations

from cffi import FFI

from mltcp_tools.kernel.native.constants import structs

STRUCTS = structs("mltcp_hop.h") + structs("mltcp_rate.h")

_ffi = FFI()
_ffi.cdef(STRUCTS)


def pack_params(fields: dict[str, int]) -> bytes:
    """Bytes of struct mltcp_rate_params with the fields given and zero in all others."""
    return bytes(_ffi.buffer(_ffi.new("struct mltcp_rate_params *", fields)))
