"""What stands in C alone and is read from there, against what a compiler makes of it."""

from __future__ import annotations

import pytest

from mltcp_tools.backends.base import JobParams
from mltcp_tools.backends.params import params_fields
from mltcp_tools.native.constants import constant, share
from mltcp_tools.native.extension import extension

NAMES = ("ONE", "GAIN_MAX", "KEEP_MAX", "TOTAL_MAX", "GAP_MAX_NS", "MECHANISMS_DEFAULT")
DEFAULTS = ("SLOPE", "INTERCEPT", "KEEP_MIN", "KEEP_MAX", "YIELD_MIN", "YIELD_MAX")


@pytest.mark.parametrize("name", [*NAMES, *(f"DEFAULT_{name}" for name in DEFAULTS)])
def test_a_constant_is_what_the_compiler_says(name: str) -> None:
    library, _ = extension(
        f"constant_{name.lower()}",
        "uint64_t value(void);",
        f'#include "mltcp_core.h"\nuint64_t value(void) {{ return MLTCP_{name}; }}\n',
    )
    assert constant(name) == library.value()


def test_the_defaults_reach_the_kernel_as_they_stand_in_c() -> None:
    fields = params_fields(JobParams())
    assert {name: fields[name.lower()] for name in DEFAULTS} == {
        name: pytest.approx(constant(f"DEFAULT_{name}"), abs=2) for name in DEFAULTS
    }


def test_what_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        share("NO_SUCH")
