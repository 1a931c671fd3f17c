// SPDX-License-Identifier: GPL-2.0-only
/* mltcp_reno's callbacks replayed against the kernel's Reno. */
#include "../../bpf/mltcp_reno.bpf.c"
#include "replay.bpf.h"

REPLAY_U32(ssthresh, tcp_reno_ssthresh)
REPLAY_AVOID(cong_avoid, tcp_reno_cong_avoid)
REPLAY_U32(undo_cwnd, tcp_reno_undo_cwnd)

SEC(".struct_ops")
struct tcp_congestion_ops replay_reno = {
	.init = (void *)init,
	.release = (void *)release,
#ifdef HAVE_CWND_EVENT_TX_START
	.cwnd_event_tx_start = (void *)cwnd_event_tx_start,
#else
	.cwnd_event = (void *)cwnd_event,
#endif
	.pkts_acked = (void *)pkts_acked,
	.ssthresh = (void *)replay_ssthresh,
	.cong_avoid = (void *)replay_cong_avoid,
	.undo_cwnd = (void *)replay_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "replay_reno",
};
