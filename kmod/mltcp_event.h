/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MLTCP: what BPF tells of an iteration that has ended, as mltcp_put_iteration() of the module does. The
 * socket's cookie, namespace and addresses come besides.
 */
#ifndef MLTCP_EVENT_H
#define MLTCP_EVENT_H

#include "mltcp_core.h"

static inline void mltcp_describe_iteration(struct mltcp_event *event, const struct mltcp_flow *f)
{
	event->first_ack_ns = f->start_ns;
	event->last_ack_ns = f->last_ns;
	event->bytes = mltcp_sent(f);
	event->job = f->job;
	event->iteration = f->iteration;
	event->retransmits = f->retransmits - f->start_retransmits;
	event->srtt_us = f->srtt_us;
	event->cwnd = f->cwnd;
	event->ratio = f->ratio;
}

#endif
