# SPDX-License-Identifier: BSD-2-Clause
"""The parts of scripts/vm that take no VM to test."""

from __future__ import annotations

from vms.log import panic, problems

BROKEN = """\
[    9.1] BUG: unable to handle page fault for address: ffffc90000fd7f40
[    9.1] BUG: sleeping function called from invalid context at mm/slab.h:1
[    9.1] BUG mltcp_sock (Tainted: G OE): Objects remaining in mltcp_sock on __kmem_cache_shutdown()
[    9.1] BUG: KASAN: slab-use-after-free in mltcp_ack+0x1/0x2 [tcp_mltcp]
[    9.1] WARNING: CPU: 1 PID: 5 at net/ipv4/tcp_input.c:1 tcp_ack+0x1/0x2
[    9.1] WARNING: possible circular locking dependency detected
[    9.1] Oops: 0000 [#1] PREEMPT SMP KASAN
[    9.1] general protection fault, probably for non-canonical address: 0000 [#1]
[    9.1] INFO: task python3:7 blocked for more than 120 seconds.
[    9.1] INFO: trying to register non-static key.
[    9.1] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
[    9.1] UBSAN: shift-out-of-bounds in kmod/mltcp_core.h:1:2
[    9.1] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
[    9.1] unreferenced object 0xffff888003a5d000 (size 184):
[    9.1] kmemleak: Kernel memory leak detector disabled
[    9.1] refcount_t: underflow; use-after-free.
[    9.1] unregister_netdevice: waiting for lo to become free. Usage count = 2
[    9.1] list_del corruption. prev->next should be ffff, but was 0000
[    9.1] Kernel panic - not syncing: Fatal exception in interrupt
"""

WELL = """\
[    0.0] Linux version 6.1.0-56-amd64 (debian-kernel@lists.debian.org)
[    0.6] kmemleak: Kernel memory leak detector initialized (mem pool available: 31000)
[    0.6] kasan: KernelAddressSanitizer initialized
[    8.9] vm: ready after 8.89 s
[   10.2] tcp_mltcp: loading out-of-tree module taints kernel.
[   10.2] tcp_mltcp: module verification failed: signature and/or required key missing - tainting
[   10.3] TCP: request_sock_TCP: Possible SYN flooding on port 80. Sending cookies.
[   12.3] reboot: Power down
"""


def test_every_complaint_of_a_kernel_is_found() -> None:
    assert problems(BROKEN + WELL) == BROKEN.splitlines()
    assert panic(BROKEN) == "Fatal exception in interrupt"
    assert panic(WELL) is None
