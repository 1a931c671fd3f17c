# SPDX-License-Identifier: BSD-2-Clause
"""Constants that stand in C alone and are read from there, against a compiler's values."""

from __future__ import annotations

from mltcp_tools.kernel.native.constants import constant
from mltcp_tools.kernel.native.extension import extension

NAMES = ("ONE", "GAIN_MAX", "TOTAL_MAX", "GAP_MAX_NS", "MECHANISMS_DEFAULT")
RATES = ("TARGET_US", "LOW", "ADD_BYTES")
DEFAULTS = ("SLOPE", "INTERCEPT", "YIELD_MIN", "YIELD_MAX")


def test_constants_are_what_the_compiler_says() -> None:
    names = [*NAMES, *(f"DEFAULT_{name}" for name in DEFAULTS)]
    names += [f"RATE_DEFAULT_{name}" for name in RATES]
    getters = "".join(f"uint64_t {name}(void) {{ return MLTCP_{name}; }}\n" for name in names)
    library, _ = extension(
        "constants",
        "".join(f"uint64_t {name}(void);" for name in names),
        f'#include <linux/types.h>\n#include "mltcp_rate.h"\n{getters}',
    )
    assert {name: constant(name) for name in names} == {
        name: getattr(library, name)() for name in names
    }
