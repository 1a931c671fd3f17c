/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel hands to a probe, as it lays it out for BPF. No header is needed for it. */
#ifndef REGISTERS_BCC_H
#define REGISTERS_BCC_H

#ifdef __aarch64__
struct registers {
	u64 x[31], sp, pc, pstate;
};
#define ARGUMENT_1(r) ((r)->x[0])
#define ARGUMENT_2(r) ((r)->x[1])
#define ARGUMENT_3(r) ((r)->x[2])
#define ARGUMENT_4(r) ((r)->x[3])
#define ARGUMENT_5(r) ((r)->x[4])
#define ARGUMENT_6(r) ((r)->x[5])
#else
struct registers {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	u64 orig_ax, ip, cs, flags, sp, ss;
};
#define ARGUMENT_1(r) ((r)->di)
#define ARGUMENT_2(r) ((r)->si)
#define ARGUMENT_3(r) ((r)->dx)
#define ARGUMENT_4(r) ((r)->cx)
#define ARGUMENT_5(r) ((r)->r8)
#define ARGUMENT_6(r) ((r)->r9)
#endif

#endif
