# SPDX-License-Identifier: BSD-2-Clause
"""Steps that a kernel has recorded (netns/recorded_step.h), taken again by the other hosts.

One host is the core in user space, another the simulator. Each is given the flow's state as it was
before an ACK, and what the ACK said; both must leave it as the kernel did, bit for bit. Where a
path has one flow, what its flows tell each other follows from the state.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.core_flows import YIELD, ffi, lib

import mltcp_tools.lab.simulator
from mltcp_tools.kernel.native import rate, uapi
from mltcp_tools.kernel.native.extension import declarations, extension

SIMULATOR = Path(mltcp_tools.lab.simulator.__file__).parent
HEADER = Path(__file__).parents[1] / "netns" / "recorded_step.h"
RECORD = declarations(HEADER).replace("__u", "uint").replace("__s", "int")
for bits in (32, 64):
    RECORD = RECORD.replace(f"int{bits} ", f"int{bits}_t ")

TAKE = """
void take(const struct recorded_step *step, const struct mltcp_params *params,
          struct mltcp_flow *state);
"""

SOURCE = f"""
#include <stdlib.h>
#include "internal.h"
#include "{HEADER}"

/* A flow of the simulator that is where the kernel's was, and has the same ACK. */
static void take(const struct recorded_step *step, const struct mltcp_params *params,
                 struct mltcp_flow *state)
{{
    struct sim_job spec = {{.params = *params, .mltcp = 1}};
    struct job job = {{.spec = &spec}};
    struct flow peer = {{.received_bytes = step->received_bytes}};
    struct sim_host host = {{.came = (uint64_t)step->after.host.rx_kib << 10,
                             .sent = (uint64_t)step->after.host.tx_kib << 10}};
    struct shared path = {{.full = 1ULL << 32 | state->delay.full_us}};
    struct way way = {{}};
    struct flow flow = {{
        .job = &job,
        .peer = &peer,
        .host = &host,
        .way = &way,
        .path = &path,
        .acked_bytes = step->acked_bytes,
        .cwnd = step->cwnd,
        .srtt_ns = 1000ULL * step->srtt_us,
        .min_rtt_ns = 1000ULL * step->min_us,
        .retransmits = step->retransmits,
        .mltcp = *state,
    }};
    struct sim_result result = {{}};
    struct sim sim = {{.now = step->now, .result = &result}};
    uint64_t sent_ns = step->rtt_us > 0 ? step->now - 1000ULL * step->rtt_us : 0;

    account(&sim, &flow, sent_ns);
    *state = flow.mltcp;
    free(result.events);
}}
"""


@functools.cache
def simulator() -> tuple[Any, Any]:
    """(lib, ffi): the simulator that takes recorded steps."""
    return extension(
        "recorded_steps", uapi.STRUCTS + rate.STRUCTS + RECORD + TAKE, SOURCE, SIMULATOR
    )


def by_simulator(record: bytes, params: dict[str, int]) -> bytes:
    """The flow's state after the simulator has taken the step."""
    lib, ffi = simulator()
    step = ffi.from_buffer("struct recorded_step *", record)
    state = ffi.new("struct mltcp_flow *", step.before)
    lib.take(step, ffi.new("struct mltcp_params *", params), state)
    return bytes(ffi.buffer(state))


_AS_THEY_ARE = ("rtt_us", "min_us", "cwnd", "srtt_us", "retransmits")


def by_core(record: bytes, params: dict[str, int]) -> bytes:
    """The flow's state after mltcp_step() in user space."""
    step = simulator()[1].from_buffer("struct recorded_step *", record)
    flow = ffi.new("struct mltcp_flow *")
    ffi.buffer(flow)[:] = bytes(simulator()[1].buffer(simulator()[1].addressof(step, "before")))
    path = ffi.new("unsigned long long *", 1 << 32 | flow.delay.full_us)
    held = ffi.new("struct mltcp_params *", params)
    env = ffi.new(
        "struct mltcp_env *",
        {
            "params": held,
            "mechanisms": params["mechanisms"],
            "received_bytes": step.received_bytes,
            "host": {name: getattr(step.after.host, name) for name in ("rx_kib", "tx_kib")},
            "path": path,
            "path_key": 1,
        }
        | {name: getattr(step, name) for name in _AS_THEY_ARE},
    )
    lib.mltcp_step(env, flow, step.now, step.acked_bytes)
    return bytes(ffi.buffer(flow))


def after(record: bytes) -> bytes:
    """The flow's state as the kernel left it."""
    ffi = simulator()[1]
    step = ffi.from_buffer("struct recorded_step *", record)
    return bytes(ffi.buffer(ffi.addressof(step, "after")))


def assert_alike(records: Sequence[bytes], params: dict[str, int]) -> None:
    """All hosts left the flow alike after each step; the records are of all kinds of step."""
    for number, record in enumerate(records):
        wanted = after(record)
        for host in (by_core, by_simulator):
            found = host(record, params)
            assert found == wanted, f"step {number}: {host.__name__}: {_differing(wanted, found)}"
    steps = [simulator()[1].from_buffer("struct recorded_step *", record) for record in records]
    assert any(step.before.iteration != step.after.iteration for step in steps[1:])
    sees = bool(params["mechanisms"] & YIELD)
    assert any(step.after.delay.full_us for step in steps) == sees
    assert any(step.after.delay.queue_us for step in steps) == sees
    assert any(step.after.ratio == step.before.ratio for step in steps)
    assert any(step.after.ratio != step.before.ratio for step in steps)


def _differing(wanted: bytes, found: bytes) -> dict[str, tuple[Any, Any]]:
    ours, theirs = (ffi.from_buffer("struct mltcp_flow *", each) for each in (wanted, found))
    names = [(n, ours, theirs) for n, _ in ffi.typeof("struct mltcp_flow").fields if n != "delay"]
    names += [(n, ours.delay, theirs.delay) for n, _ in ffi.typeof("struct mltcp_delay").fields]
    return {
        name: (getattr(a, name), getattr(b, name))
        for name, a, b in names
        if str(getattr(a, name)) != str(getattr(b, name))
    }
