// SPDX-License-Identifier: BSD-2-Clause
/* mltcp_reno's callbacks replayed against the kernel's Reno. */
#include "../../bpf/mltcp_reno.bpf.c"
#include "replay.bpf.h"

REPLAY_U32(ssthresh, tcp_reno_ssthresh)
REPLAY_AVOID(cong_avoid, tcp_reno_cong_avoid)
REPLAY_U32(undo_cwnd, tcp_reno_undo_cwnd)

SEC(".struct_ops")
struct tcp_congestion_ops replay_reno = {
	MLTCP_COMMON_OPS,
	MLTCP_WINDOW_OPS(replay_),
	.name = "replay_reno",
};
