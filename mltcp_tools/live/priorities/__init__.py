# SPDX-License-Identifier: BSD-2-Clause
"""Priorities of jobs on real queues: a controller that orders their bursts (Sincronia).

bpf/priority.bpf.c sees what jobs send and marks it; the controller hears when bursts begin and end,
and gives each job its level. It is a process of its own, `mltcp lab priorities`. When it dies the
programs notice within half a second and treat all alike.
"""
