"""The C core (kmod/mltcp_core.h) called from Python, through cffi.

This compiles the very header that the kernel side compiles, with the system's C compiler, once
per version of the sources. Unit tests compare it with an independent model, and traces of ACKs
can be replayed through it.
"""

from __future__ import annotations

import functools
from typing import Any

from mltcp_tools.native import uapi
from mltcp_tools.native.extension import extension

_FUNCTIONS = """
uint64_t mltcp_scale(uint32_t value, uint32_t share);
uint8_t mltcp_params_valid(const struct mltcp_params *p);
uint32_t mltcp_ratio(uint64_t sent, uint64_t total);
uint32_t mltcp_gain(const struct mltcp_params *p, uint32_t ratio);
uint32_t mltcp_between(uint32_t low, uint32_t high, uint32_t ratio);
void mltcp_reset(struct mltcp_flow *f, uint32_t job, uint64_t acked_bytes, uint32_t retransmits);
uint64_t mltcp_sent(const struct mltcp_flow *f);
uint64_t mltcp_total(const struct mltcp_flow *f, const struct mltcp_params *p);
uint8_t mltcp_was_idle(const struct mltcp_flow *f);
uint8_t mltcp_is_boundary(struct mltcp_flow *f, const struct mltcp_params *p, uint64_t now);
uint8_t mltcp_is_reported(const struct mltcp_flow *f, uint64_t default_gap_ns);
void mltcp_begin(struct mltcp_flow *f, const struct mltcp_params *p, uint64_t now,
                 uint64_t received_bytes, uint64_t host_bytes);
uint64_t mltcp_host_bytes(uint64_t octets, uint64_t packets);
void mltcp_on_send(struct mltcp_flow *f, uint64_t now, uint32_t retransmits);
void mltcp_begin_small(struct mltcp_flow *f, uint32_t srtt_us, uint32_t min_us, uint32_t *cwnd,
                       uint32_t *ssthresh);
uint8_t mltcp_is_due(const struct mltcp_flow *f, uint64_t now, uint64_t acked_bytes);
uint8_t mltcp_on_ack(struct mltcp_flow *f, uint64_t now, uint64_t acked_bytes);
void mltcp_decide(struct mltcp_flow *f, const struct mltcp_params *p, uint32_t mechanisms,
                  uint64_t now);
void mltcp_be_base(struct mltcp_flow *f);
void mltcp_note(struct mltcp_flow *f, uint32_t cwnd, uint32_t srtt_us, uint32_t retransmits);
uint8_t mltcp_is_base(const struct mltcp_flow *f);
uint32_t mltcp_scaled_acked(struct mltcp_flow *f, uint32_t acked);
uint32_t mltcp_on_loss(struct mltcp_flow *f, uint32_t cwnd, uint32_t base, uint32_t srtt_us,
                       uint32_t min_us);
uint8_t mltcp_is_aside(const struct mltcp_flow *f);
uint32_t mltcp_on_mark(struct mltcp_flow *f, uint32_t cwnd, uint32_t base, uint32_t srtt_us,
                       uint32_t min_us);
uint8_t mltcp_must_yield(const struct mltcp_flow *f);
uint8_t mltcp_yield_or_resume(struct mltcp_flow *f, uint32_t srtt_us, uint32_t *cwnd,
                              uint32_t *ssthresh);
struct mltcp_rtt {
    uint32_t now_us;
    int32_t rtt_us;
    uint32_t min_us, segments;
    uint64_t bytes;
    uint32_t outstanding, retransmitted, stamp;
};
void mltcp_delay_rtt(struct mltcp_delay *d, const struct mltcp_rtt *s);
void mltcp_delay_passed(struct mltcp_delay *d);
void mltcp_delay_cross(struct mltcp_delay *d, uint8_t two_way);
void mltcp_delay_rate(struct mltcp_delay *d, uint64_t bytes, uint64_t ns);
void mltcp_delay_full(struct mltcp_delay *d, uint64_t now, uint32_t srtt_us, uint32_t min_us);
void mltcp_delay_ask(struct mltcp_delay *d, uint64_t now, unsigned long long *slot, uint32_t key);
void mltcp_delay_tell(const struct mltcp_delay *d, unsigned long long *slot, uint32_t key);
#define MLTCP_ACK_BYTES ...
#define MLTCP_TWO_WAY_SHARE ...
#define MLTCP_ANY_TWO_WAY ...
#define MLTCP_HOST_TWO_WAY ...
#define MLTCP_OVERRUN ...
#define MLTCP_STEPS ...
#define MLTCP_QUEUE_MIN_US ...
#define MLTCP_QUEUE_MAX_US ...
#define MLTCP_OWN_LOSSES ...
#define MLTCP_DATE_SHIFT ...
#define MLTCP_DATES_MAX ...
#define MLTCP_FINE_WITHIN_US ...
#define MLTCP_CWND_MIN ...
#define MLTCP_CWND_BEGIN ...
#define MLTCP_KEEP_MAX ...
#define MLTCP_LOOK_AGAIN ...
#define MLTCP_GAIN_MAX ...
#define MLTCP_TOTAL_MAX ...
#define MLTCP_GAP_MAX_NS ...
#define MLTCP_SHAPE_COUNT ...
"""

_SOURCE = """
#include <linux/types.h>
#include "mltcp_core.h"
"""


@functools.cache
def core() -> tuple[Any, Any]:
    """(lib, ffi): the functions of mltcp_core.h, and cffi's handle to make their structs.

    Raises HostError when there is no C compiler or no Python header.
    """
    return extension("core", uapi.STRUCTS + _FUNCTIONS, _SOURCE)
