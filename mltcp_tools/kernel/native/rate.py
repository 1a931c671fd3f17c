# SPDX-License-Identifier: BSD-2-Clause
"""The structs of kmod/mltcp_rate.h, declared to Python without a compiler, as uapi.py does."""

from __future__ import annotations

from cffi import FFI

STRUCTS = """
struct mltcp_hop_link { uint64_t ns_per_kib, queue_ns, bucket_ns; };
struct mltcp_hop { uint64_t seen_ns, waits_ns; uint32_t busy, pad; };
struct mltcp_rate_params { uint32_t target_us, low, add_bytes, host; };
struct mltcp_rate_path { uint64_t heard_ns; uint32_t busy, queue_us, key, pad; };
struct mltcp_rate_job {
    uint64_t acked, begun, total, last_ns, gap_ns, kib_ns;
    uint32_t flows, bursts, key, pad;
};
struct mltcp_rate {
    uint64_t window, stepped_ns, stepped_bytes;
    uint32_t cwnd, rtt_us, steps, fallbacks, bursts, late_us;
    uint8_t follows, pad[3];
};
struct mltcp_rate_ack { uint64_t now; uint32_t cwnd, mss, min_rtt_us; };
"""

_ffi = FFI()
_ffi.cdef(STRUCTS)


def pack_params(fields: dict[str, int]) -> bytes:
    """Bytes of struct mltcp_rate_params with the fields given and zero in all others."""
    return bytes(_ffi.buffer(_ffi.new("struct mltcp_rate_params *", fields)))
