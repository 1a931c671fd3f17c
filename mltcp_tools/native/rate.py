"""The C law of windows from feedback (kmod/mltcp_rate.h) called from Python, as core.py does."""

from __future__ import annotations

import functools
from typing import Any

from mltcp_tools.native.extension import extension

STRUCTS = """
struct mltcp_hop { uint64_t seen_ns, waits_ns; uint32_t busy, pad; };
struct mltcp_rate_params { uint32_t target_us, low, add_bytes, host; };
struct mltcp_rate {
    uint64_t window, heard_ns, stepped_ns, stepped_bytes;
    uint32_t busy, queue_us, steps, fallbacks;
    uint8_t follows, pad[7];
};
"""
_FUNCTIONS = """
uint32_t mltcp_hop_pass(struct mltcp_hop *h, uint64_t now, uint32_t bytes, uint64_t ns_per_kib);
void mltcp_rate_hear(struct mltcp_rate *r, uint64_t now, uint32_t value, uint32_t srtt_us);
uint32_t mltcp_rate_guess(uint32_t queue_us);
uint8_t mltcp_rate_fresh(const struct mltcp_rate *r, uint64_t now, uint32_t srtt_us);
uint64_t mltcp_rate_load(const struct mltcp_rate *r, const struct mltcp_rate_params *p,
                         uint32_t min_rtt_us, uint32_t ratio);
uint32_t mltcp_rate_window(struct mltcp_rate *r, const struct mltcp_rate_params *p, uint64_t now,
                           uint64_t acked_bytes, uint32_t cwnd, uint32_t ssthresh, uint32_t mss,
                           uint32_t srtt_us, uint32_t min_rtt_us, uint32_t gain, uint32_t ratio);
void mltcp_rate_lose(struct mltcp_rate *r);
#define MLTCP_HOP_QUEUE ...
#define MLTCP_HOP_BUSY ...
#define MLTCP_STALE_RTTS ...
#define MLTCP_STALE_NS ...
"""


@functools.cache
def rate() -> tuple[Any, Any]:
    """(lib, ffi): the functions of mltcp_rate.h, and cffi's handle to make their structs.

    Raises HostError when there is no C compiler or no Python header.
    """
    source = '#include <linux/types.h>\n#include "mltcp_rate.h"\n'
    return extension("rate", STRUCTS + _FUNCTIONS, source)


def pack_params(fields: dict[str, int]) -> bytes:
    """Bytes of struct mltcp_rate_params with the fields given and zero in all others."""
    _, ffi = rate()
    return bytes(ffi.buffer(ffi.new("struct mltcp_rate_params *", fields)))
