# SPDX-License-Identifier: BSD-2-Clause
"""Python's copy of the uapi structs against the header as the compiler sees it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from support.core import core

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends.base import (
    GAIN_MAX,
    GAP_MAX_S,
    TOTAL_MAX,
    Job,
    JobParams,
)
from mltcp_tools.kernel.backends.params import params_fields, params_from_struct
from mltcp_tools.kernel.congestion_controls import MECHANISMS
from mltcp_tools.kernel.native import uapi
from mltcp_tools.kernel.native.csources import source_root

STRUCTS = re.findall(r"struct (mltcp_\w+) \{", uapi.STRUCTS)


@pytest.mark.parametrize("name", STRUCTS)
def test_struct_has_the_compilers_layout(name: str) -> None:
    _, compiled = core()
    ours = uapi.ffi.typeof(f"struct {name}")
    theirs = compiled.typeof(f"struct {name}")
    assert uapi.ffi.sizeof(ours) == compiled.sizeof(theirs)
    assert [(field, info.offset) for field, info in ours.fields] == [
        (field, info.offset) for field, info in theirs.fields
    ]


def test_constants_are_the_headers() -> None:
    lib, _ = core()
    header = (source_root() / "kmod" / "mltcp_uapi.h").read_text()
    assert uapi.to_fixed(GAIN_MAX) == lib.MLTCP_GAIN_MAX
    assert lib.MLTCP_TOTAL_MAX == TOTAL_MAX
    assert lib.MLTCP_GAP_MAX_NS == GAP_MAX_S * 1e9
    assert uapi.ANY_BIDIRECTIONAL == lib.MLTCP_ANY_BIDIRECTIONAL
    rules = (source_root() / "kmod" / "rules.h").read_text()
    assert f"#define MLTCP_RULE_PORTS {uapi.RULE_PORTS}\n" in rules
    for name in ("NAME", "GROUP"):
        assert f'#define MLTCP_GENL_{name} "{getattr(uapi, f"GENL_{name}")}"' in header


NETLINK = {
    "CMD": uapi.Command,
    "A": uapi.Attribute,
    "P": uapi.Params,
    "F": uapi.FlowAttribute,
    "I": uapi.IterationAttribute,
}


def test_netlink_numbers_are_the_compilers(tmp_path: Path) -> None:
    lines = ["#include <linux/types.h>", '#include "rules.h"']
    lines += [
        f"_Static_assert(MLTCP_{prefix}_{each.name} == {each.value}, {each.name!r});".replace(
            "'", '"'
        )
        for prefix, numbered in NETLINK.items()
        for each in numbered
    ]
    lines += [f'_Static_assert(MLTCP_GENL_VERSION == {uapi.GENL_VERSION}, "version");']
    lines += ['_Static_assert(MLTCP_CMDS == 12 && MLTCP_ATTRS == 14, "all of them");']
    source = tmp_path / "numbers.c"
    source.write_text("\n".join([*lines, ""]))
    command = ["gcc", "-fsyntax-only", "-I", str(source_root() / "kmod"), str(source)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("mechanisms", [None, (), ("increase",), MECHANISMS])
def test_params_survive_the_way_to_the_kernel_and_back(mechanisms: tuple[str, ...] | None) -> None:
    params = JobParams(
        burst_bytes=5 * 2**32,
        gap_s=0.17,
        slope=4.0,
        intercept=0.3,
        mechanisms=mechanisms,
        yield_min=0.1,
    )
    packed = uapi.pack("mltcp_params", params_fields(params))
    assert params_from_struct(uapi.unpack("mltcp_params", packed)) == params


def test_the_netlink_specification_is_the_headers() -> None:
    spec = yaml.safe_load((source_root() / "kmod" / "mltcp.yaml").read_text())
    operations = [entry["name"].removesuffix("-ntf") for entry in spec["operations"]["list"]]
    described = [operations] + [
        [entry["name"] for entry in each["attributes"]] for each in spec["attribute-sets"]
    ]
    assert [[name for name in each if name != "pad"] for each in described] == [
        [each.name.lower().replace("_", "-") for each in numbered] for numbered in NETLINK.values()
    ]


def types_in_c() -> dict[str, set[str]]:
    """Return the types that the module's C has for each attribute, where it takes or gives it."""
    source = "".join(
        (source_root() / "kmod" / name).read_text() for name in ("mltcp_attrs.c", "mltcp_netlink.c")
    )
    given = re.findall(r"\b(?:nla_)?(put\w*|nest_start)\(skb, MLTCP_([APFI]_\w+)", source)
    taken = re.findall(r"\[MLTCP_([AP]_\w+)\] = (?:\{\.type = |NLA_POLICY_MIN\()?NLA_(\w+)", source)
    types: dict[str, set[str]] = {}
    for name, kind in [*((name, call) for call, name in given), *taken]:
        types.setdefault(name.lower().replace("_", "-"), set()).add(TYPES.get(kind, kind.lower()))
    return types


TYPES = {
    "put": "binary",
    "put_address": "binary",
    "put_string": "string",
    "put_u64_64bit": "u64",
    "nest_start": "nest",
    "POLICY_EXACT_LEN": "binary",
    "POLICY_NESTED": "nest",
    "NUL_STRING": "string",
    "REJECT": "pad",
}
TYPES |= {f"put_u{bits}": f"u{bits}" for bits in (8, 16, 32, 64)}


def test_the_netlink_specifications_types_are_those_in_c() -> None:
    spec = yaml.safe_load((source_root() / "kmod" / "mltcp.yaml").read_text())
    described = {
        each["name-prefix"].removeprefix("mltcp-") + entry["name"]: {entry["type"]}
        for each in spec["attribute-sets"]
        for entry in each["attributes"]
        if entry["type"] != "pad"
    }
    types = types_in_c()
    assert types.pop("a-pad") == {"pad"}
    ends = [f"{end}-{what}" for end in ("local", "remote") for what in ("addr", "port")]
    types |= {f"i-{each}": types[f"f-{each}"] for each in ("cookie", *ends)}  # by one function
    assert described == types


def test_parameters_are_the_structs_fields() -> None:
    """Their 32-bit ones follow each other in the same order: genl.h of the tests relies on that."""
    fields = [name for name, _ in uapi.ffi.typeof("struct mltcp_params").fields]
    assert [kind.name.lower() for kind in uapi.Params] == fields


@pytest.mark.parametrize(
    "wrong",
    [
        {"burst_bytes": -1},
        {"gap_s": -0.1},
        {"gap_s": float("nan")},
        {"slope": 8.1, "intercept": 0.0},
        {"slope": 7.0, "intercept": 1.1},
        {"intercept": -1.0},
        {"yield_min": -0.1},
        {"mechanisms": ("magic",)},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong)).removesuffix("s")):
        JobParams(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "name"), [(0, "a"), (2**32, "a"), (1, ""), (1, "x" * 64), (1, "a\n"), (1, "\udcff")]
)
def test_jobs_out_of_range_are_refused(number: int, name: str) -> None:
    with pytest.raises(UsageError, match="job"):
        Job(number, name)
