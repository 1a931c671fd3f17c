// SPDX-License-Identifier: BSD-2-Clause
/* mltcp_cubic's callbacks replayed against the kernel's CUBIC. */
#include "../../bpf/mltcp_cubic.bpf.c"
#include "replay.bpf.h"

REPLAY_U32(ssthresh, cubictcp_recalc_ssthresh)
REPLAY_AVOID(cong_avoid, cubictcp_cong_avoid)
REPLAY_U32(undo_cwnd, tcp_reno_undo_cwnd)
REPLAY_VOID(set_state, cubictcp_state, __u8)
#ifndef HAVE_CWND_EVENT_TX_START
REPLAY_VOID(cwnd_event, cubictcp_cwnd_event, enum tcp_ca_event)
#endif
REPLAY_VOID(pkts_acked, cubictcp_acked, const struct ack_sample *)

SEC(".struct_ops")
struct tcp_congestion_ops replay_cubic = {
	.init = (void *)init,
	.release = (void *)release,
	.pkts_acked = (void *)replay_pkts_acked,
	MLTCP_WINDOW_OPS(replay_),
	.set_state = (void *)replay_set_state,
#ifdef HAVE_CWND_EVENT_TX_START
	.cwnd_event_tx_start = (void *)cwnd_event_tx_start,
#else
	.cwnd_event = (void *)replay_cwnd_event,
#endif
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "replay_cubic",
};
