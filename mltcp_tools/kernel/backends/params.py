# SPDX-License-Identifier: BSD-2-Clause
"""Job parameters between Python's units and the kernel's fixed point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltcp_tools.kernel.backends.base import GAP_MAX_S, TOTAL_MAX, JobParams
from mltcp_tools.kernel.native import uapi

_MECHANISMS = {
    "increase": uapi.SCALE_INCREASE,
    "yield": uapi.YIELD,
}


def params_fields(params: JobParams) -> dict[str, int]:
    """Fields of struct mltcp_params."""
    if params.mechanisms is None:
        mechanisms = uapi.MECHANISMS_DEFAULT
    else:
        mechanisms = sum(_MECHANISMS[name] for name in set(params.mechanisms))
    return {
        "burst_bytes": params.burst_bytes,
        "gap_ns": round(params.gap_s * 1e9),
        "slope": uapi.to_fixed(params.slope),
        "intercept": uapi.to_fixed(params.intercept),
        "yield_min": uapi.to_fixed(params.yield_min),
        "yield_max": uapi.to_fixed(params.yield_max),
        "mechanisms": mechanisms,
    }


def params_from_struct(struct: Any) -> JobParams:
    """JobParams from a cffi `struct mltcp_params`, see params_from_fields()."""
    names = (name for name, _ in uapi.ffi.typeof("struct mltcp_params").fields)
    return params_from_fields({name: getattr(struct, name) for name in names})


def params_from_fields(fields: Mapping[str, int]) -> JobParams:
    """JobParams from the fields of struct mltcp_params, rounded to what people wrote.

    The kernel takes larger sizes and gaps from other programs; they show as the largest.
    """
    mechanisms = None
    if fields["mechanisms"] != uapi.MECHANISMS_DEFAULT:
        mechanisms = tuple(name for name, bit in _MECHANISMS.items() if fields["mechanisms"] & bit)
    fixed = {
        name: round(uapi.from_fixed(fields[name]), 4)
        for name in ("slope", "intercept", "yield_min", "yield_max")
    }
    return JobParams(
        burst_bytes=min(fields["burst_bytes"], TOTAL_MAX),
        gap_s=min(fields["gap_ns"] / 1e9, GAP_MAX_S),
        mechanisms=mechanisms,
        **fixed,
    )
