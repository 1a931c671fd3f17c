# SPDX-License-Identifier: BSD-2-Clause
"""The C law of windows from feedback (kmod/mltcp_rate.h) called from Python, as core.py does."""

from __future__ import annotations

import functools
from typing import Any

from mltcp_tools.kernel.native import uapi
from mltcp_tools.kernel.native.extension import extension
from mltcp_tools.kernel.native.rate import STRUCTS

_FUNCTIONS = """
uint32_t mltcp_hop_word(uint32_t busy, uint64_t queue_us);
uint32_t mltcp_hop_queue_us(uint32_t word);
uint32_t mltcp_hop_busy(uint32_t word);
uint32_t mltcp_hop_pass(struct mltcp_hop *h, const struct mltcp_hop_link *link, uint64_t now,
                        uint32_t bytes);
uint8_t mltcp_rate_path_is(struct mltcp_rate_path *path, uint32_t key, uint64_t now);
uint8_t mltcp_rate_job_is(struct mltcp_rate_job *j, uint32_t key, uint64_t now);
void mltcp_rate_job_ack(struct mltcp_rate_job *j, uint64_t now, uint64_t bytes, uint32_t begins,
                        uint64_t idle_ns);
uint32_t mltcp_rate_progress(const struct mltcp_rate_job *j, const struct mltcp_flow *f);
uint32_t mltcp_rate_share(const struct mltcp_rate_job *j, const struct mltcp_flow *f);
uint8_t mltcp_rate_fresh(const struct mltcp_rate_path *path, uint64_t now, uint32_t min_rtt_us);
uint8_t mltcp_rate_asks(uint64_t now, uint64_t asked_ns, uint32_t rtt_us);
void mltcp_rate_hear(struct mltcp_rate_path *path, uint64_t now, uint32_t word,
                     uint32_t min_rtt_us);
uint32_t mltcp_rate_guess(const struct mltcp_rate_job *j, const struct mltcp_rate_ack *a);
uint32_t mltcp_rate_accepts(const struct mltcp_rate_params *p, const struct mltcp_rate_job *j,
                            const struct mltcp_flow *f, const struct mltcp_rate_ack *a);
uint64_t mltcp_rate_least(const struct mltcp_rate_job *j, uint32_t mss, uint32_t rtt_us);
uint32_t mltcp_rate_window(struct mltcp_rate *r, const struct mltcp_rate_params *p,
                           const struct mltcp_rate_path *path, struct mltcp_rate_job *j,
                           const struct mltcp_flow *f, const struct mltcp_rate_ack *a);
uint64_t mltcp_rate_pacing(const struct mltcp_rate *r, uint32_t mss);
void mltcp_rate_lose(struct mltcp_rate *r);
#define MLTCP_HOP_BUSY ...
#define MLTCP_HOP_SHIFT ...
#define MLTCP_HOP_MOST_NS ...
#define MLTCP_STALE_RTTS ...
#define MLTCP_STALE_NS ...
#define MLTCP_RATE_KEPT_NS ...
#define MLTCP_RATE_STEP ...
#define MLTCP_RATE_CAUTION ...
#define MLTCP_BIDIRECTIONAL ...
"""


@functools.cache
def rate() -> tuple[Any, Any]:
    """(lib, ffi): the functions of mltcp_rate.h, and cffi's handle to make their structs.

    Raises HostError when there is no C compiler or no Python header.
    """
    source = '#include <linux/types.h>\n#include "mltcp_rate.h"\n'
    return extension("rate", uapi.STRUCTS + STRUCTS + _FUNCTIONS, source)
