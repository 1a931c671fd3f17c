# SPDX-License-Identifier: BSD-2-Clause
"""The C core (kmod/mltcp_step.h and what it includes) called from Python, through cffi.

This compiles the very headers that the kernel side compiles, with the system's C compiler, once
per version of the sources. Unit tests compare it with an independent model, and traces of ACKs
can be replayed through it.
"""

from __future__ import annotations

import functools
from typing import Any

from mltcp_tools.kernel.native import uapi
from mltcp_tools.kernel.native.extension import extension

_FUNCTIONS = """
uint64_t mltcp_scale(uint32_t value, uint32_t share);
uint8_t mltcp_params_valid(const struct mltcp_params *p);
uint8_t mltcp_params_open(const struct mltcp_params *p, const struct mltcp_params *most);
uint32_t mltcp_ratio(uint64_t sent, uint64_t total);
uint32_t mltcp_gain(const struct mltcp_params *p, uint32_t ratio);
uint32_t mltcp_between(uint32_t low, uint32_t high, uint32_t ratio);
void mltcp_reset(struct mltcp_flow *f, uint32_t job, uint64_t acked_bytes, uint32_t retransmits);
uint64_t mltcp_sent(const struct mltcp_flow *f);
uint64_t mltcp_total(const struct mltcp_flow *f);
uint8_t mltcp_was_idle(const struct mltcp_flow *f);
uint8_t mltcp_is_boundary(struct mltcp_flow *f, const struct mltcp_params *p);
uint8_t mltcp_is_reported(const struct mltcp_flow *f, uint64_t default_gap_ns);
void mltcp_begin(struct mltcp_flow *f, const struct mltcp_params *p, uint64_t now,
                 uint64_t received_bytes, const struct mltcp_host *host);
uint32_t mltcp_host_kib(uint64_t octets, uint64_t packets);
uint8_t mltcp_host_is_due(uint64_t counted_ns, uint64_t now);
void mltcp_on_send(struct mltcp_flow *f, uint64_t now, uint32_t retransmits);
void mltcp_begin_small(struct mltcp_flow *f, uint32_t srtt_us, uint32_t min_us, uint32_t *cwnd,
                       uint32_t *ssthresh);
uint8_t mltcp_is_due(const struct mltcp_flow *f, uint64_t now, uint64_t acked_bytes);
void mltcp_count(struct mltcp_flow *f, uint64_t now, uint64_t acked_bytes);
void mltcp_decide(struct mltcp_flow *f, const struct mltcp_params *p, uint32_t mechanisms,
                  uint64_t now, unsigned long long *job_slot, uint32_t job_key);
void mltcp_be_as_base(struct mltcp_flow *f);
void mltcp_note(struct mltcp_flow *f, uint32_t cwnd, uint32_t srtt_us, uint32_t retransmits);
uint8_t mltcp_is_base(const struct mltcp_flow *f);
uint32_t mltcp_scaled_acked(struct mltcp_flow *f, uint32_t acked);
uint32_t mltcp_bounded_cwnd(uint32_t before, uint32_t cwnd, uint32_t acked);
void mltcp_on_loss(struct mltcp_flow *f, uint32_t srtt_us, uint32_t min_us,
                   unsigned long long *slot, uint32_t key);
void mltcp_on_time_out(struct mltcp_flow *f, uint64_t now);
void mltcp_on_undo(struct mltcp_flow *f, unsigned long long *slot, uint32_t key);
uint8_t mltcp_must_yield(const struct mltcp_flow *f);
uint8_t mltcp_yield_or_resume(struct mltcp_flow *f, uint32_t srtt_us, uint32_t min_us,
                              uint32_t *cwnd, uint32_t *ssthresh);
struct mltcp_env {
    const struct mltcp_params *params;
    uint32_t mechanisms;
    int32_t rtt_us;
    uint32_t min_us;
    uint32_t cwnd, srtt_us, retransmits;
    uint64_t received_bytes, reported_bytes;
    struct mltcp_host host;
    unsigned long long *path, *job_path;
    uint32_t path_key, reports;
    uint8_t off;
};
void mltcp_step(struct mltcp_env *env, struct mltcp_flow *f, uint64_t now, uint64_t acked_bytes);
void mltcp_delay_sample(struct mltcp_delay *d, int32_t rtt_us, uint32_t min_us);
void mltcp_delay_look(struct mltcp_delay *d);
void mltcp_delay_forget(struct mltcp_delay *d);
void mltcp_delay_full(struct mltcp_delay *d, uint32_t srtt_us, uint32_t min_us);
void mltcp_delay_ask(struct mltcp_delay *d, const unsigned long long *slot, uint32_t key);
void mltcp_delay_tell(const struct mltcp_delay *d, unsigned long long *slot, uint32_t key);
#define MLTCP_ACK_BYTES ...
#define MLTCP_BIDIRECTIONAL_SHARE ...
#define MLTCP_ANY_BIDIRECTIONAL ...
#define MLTCP_HOST_BIDIRECTIONAL ...
#define MLTCP_HOST_KNOWN ...
#define MLTCP_OVERRUN ...
#define MLTCP_STEPS ...
#define MLTCP_NO_SAMPLE ...
#define MLTCP_LOOK_NS ...
#define MLTCP_CWND_MIN ...
#define MLTCP_CWND_BEGIN ...
#define MLTCP_LOOK_AGAIN_NS ...
#define MLTCP_GAIN_MAX ...
#define MLTCP_TOTAL_MAX ...
#define MLTCP_GAP_MAX_NS ...
"""

_SOURCE = """
#include <linux/types.h>
#include "mltcp_loss.h"
#include "mltcp_step.h"
#include "mltcp_yield.h"

/* What the caller sets, and is told. */
struct mltcp_env {
    const struct mltcp_params *params;
    __u32 mechanisms;
    __s32 rtt_us;
    __u32 min_us;
    __u32 cwnd, srtt_us, retransmits;
    __u64 received_bytes, reported_bytes;
    struct mltcp_host host;
    __u64 *path, *job_path;
    __u32 path_key, reports;
    __u8 off;
};

static __s32 mltcp_env_rtt(const struct mltcp_env *env, __u32 *min_us)
{
    *min_us = env->min_us;
    return env->rtt_us;
}

static const struct mltcp_params *mltcp_env_params(struct mltcp_env *env, struct mltcp_flow *f,
                                                   __u32 *mechanisms)
{
    (void)f;
    *mechanisms = env->mechanisms;
    return env->params;
}

static void mltcp_env_report(struct mltcp_env *env, const struct mltcp_flow *f)
{
    if (!mltcp_is_reported(f, 0))
        return;
    env->reports++;
    env->reported_bytes = mltcp_sent(f);
}

static __u64 mltcp_env_received(const struct mltcp_env *env)
{
    return env->received_bytes;
}

static struct mltcp_host mltcp_env_host(const struct mltcp_env *env, __u64 now)
{
    (void)now;
    return env->host;
}

static __u64 *mltcp_env_path(const struct mltcp_env *env, __u32 job, __u32 *key)
{
    *key = env->path_key;
    return job ? env->job_path : env->path;
}

static void mltcp_env_note(const struct mltcp_env *env, struct mltcp_flow *f)
{
    mltcp_note(f, env->cwnd, env->srtt_us, env->retransmits);
}

static __u8 mltcp_env_is_off(const struct mltcp_env *env)
{
    return env->off;
}
"""


@functools.cache
def core() -> tuple[Any, Any]:
    """(lib, ffi): the functions of the core, and cffi's handle to make their structs.

    Raises HostError when there is no C compiler or no Python header.
    """
    return extension("core", uapi.STRUCTS + _FUNCTIONS, _SOURCE)
