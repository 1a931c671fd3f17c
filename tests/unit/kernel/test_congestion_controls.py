# SPDX-License-Identifier: BSD-2-Clause
"""The table of congestion controls says what the C registers."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.core import core

from mltcp_tools.kernel.congestion_controls import (
    CONGESTION_CONTROLS,
    MECHANISMS,
    NAMES,
    base_of,
    observer_of,
    offered_by,
)
from mltcp_tools.kernel.native.constants import constant
from mltcp_tools.kernel.native.csources import source_root
from mltcp_tools.kernel.native.objects import find_clang, multiarch_include

lib, _ = core()

PROGRAMS = sorted((source_root() / "bpf").glob("mltcp*.bpf.c"))
NON_RESTRICTED, NEEDS_ECN = 1, 2
"""TCP_CONG_NON_RESTRICTED and TCP_CONG_NEEDS_ECN of include/net/tcp.h."""
BITS = dict(zip(MECHANISMS, ("SCALE_INCREASE", "YIELD"), strict=True))


@dataclass(frozen=True)
class Registered:
    """The facts that C states of one congestion control."""

    base: str
    mechanisms: tuple[str, ...]
    restricted: bool


def described(name: str) -> Registered:
    row = CONGESTION_CONTROLS[name]
    return Registered(row.base, row.mechanisms, row.restricted)


def of_the_module() -> dict[str, Registered]:
    """Rows of the module's own table."""
    source = (source_root() / "kmod" / "mltcp_variants.c").read_text()
    every = "|".join(f"MLTCP_{bit}" for bit in BITS.values())
    source = re.sub(r"\bSCALE_ALL\b", every, source)
    table = source[source.index("mltcp_variants[MLTCP_VARIANTS] = {") :].partition("};")[0]
    found = {}
    for row in table.split("{.name")[1:]:
        name, base = re.findall(r'"(\w+)"', row)[:2]
        mechanisms = re.search(r"\.mechanisms = ([^,}]*)", row)
        assert mechanisms
        used = tuple(each for each, bit in BITS.items() if f"MLTCP_{bit}" in mechanisms[1])
        found[name] = Registered(base, used, "NON_RESTRICTED" not in row)
    return found


def of_a_program(source: Path) -> tuple[str, Registered, int]:
    """Name, description and flags of the congestion control in a preprocessed program."""
    clang, _ = find_clang()
    text = f'#include "{source}"\nMECHANISMS MLTCP_MECHANISMS\n'
    command = [clang, "-E", "-P", "-target", "bpf", multiarch_include(), "-x", "c", "-"]
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    table = said[said.index("struct tcp_congestion_ops mltcp") :]
    name = re.search(r'\.name = "(\w+)"', table)
    flags = re.search(r"\.flags = (\d+)", table)
    threshold = re.search(r"extern __u32 (\w+?)_(?:recalc_)?ssthresh\(", said)
    bits = re.search(r"^MECHANISMS (.*)$", said, re.MULTILINE)
    assert name
    assert flags
    assert threshold
    assert bits
    value = eval(bits[1].replace("1U", "1"), {})
    used = tuple(each for each, bit in BITS.items() if value & constant(bit))
    base = re.sub("^tcp_|(?<=cubic)tcp$", "", threshold[1])
    restricted = not int(flags[1]) & NON_RESTRICTED
    return name[1], Registered(base, used, restricted), int(flags[1])


def test_the_module_registers_the_rows() -> None:
    found = of_the_module()
    assert tuple(found) == offered_by("kmod")
    assert found == {name: described(name) for name in offered_by("kmod")}


def test_the_module_is_found_by_every_name_that_it_registers() -> None:
    source = (source_root() / "kmod" / "mltcp_variants.c").read_text()
    aliases = set(re.findall(r'^MODULE_ALIAS\("tcp_(\w+)"\);$', source, re.MULTILINE))
    assert aliases | {"mltcp"} == set(offered_by("kmod"))  # it is called tcp_mltcp itself
    loaded = re.search(r'^MODULE_SOFTDEP\("pre: ([^"]*)"\);$', source, re.MULTILINE)
    assert loaded
    bases = {base_of(name) for name in offered_by("kmod")} - {"reno"}  # which is built in
    assert set(loaded[1].split()) == {f"tcp_{base}" for base in bases}


def test_there_is_a_program_for_each_row() -> None:
    assert {path.name.removesuffix(".bpf.c") for path in PROGRAMS} == set(offered_by("bpf"))


@pytest.mark.parametrize("source", PROGRAMS, ids=lambda path: path.name)
def test_a_program_registers_its_row(source: Path) -> None:
    name, found, flags = of_a_program(source)
    assert name == source.name.removesuffix(".bpf.c")
    assert found == described(name)
    assert bool(flags & NEEDS_ECN) == CONGESTION_CONTROLS[name].ecn


def test_attaching_knows_which_need_ecn() -> None:
    source = (source_root() / "bpf" / "attach.bpf.c").read_text()
    function = source[source.index(" needs_ecn(const") :].partition("\n}")[0]
    named = re.findall(r'\{"(\w+)"\}', function)
    assert named == [name for name in offered_by("bpf") if CONGESTION_CONTROLS[name].ecn]


def test_a_socket_is_observed_by_a_variant_on_what_it_runs() -> None:
    for name in NAMES:
        assert observer_of(name) in ("", *NAMES)
        assert base_of(observer_of(name) or name) == base_of(name)
    assert [observer_of(cc) for cc in ("reno", "cubic", "dctcp")] == [
        "mltcp_reno",
        "mltcp_cubic",
        "mltcp_dctcp",
    ]
    assert observer_of("bbr") == ""
    assert base_of("bbr") == "bbr"
