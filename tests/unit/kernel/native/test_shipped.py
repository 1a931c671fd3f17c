# SPDX-License-Identifier: BSD-2-Clause
"""Programs that came compiled with the package: used without a compiler, unless sources differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mltcp_tools.base.errors import HostError
from mltcp_tools.doctor import bpf as doctor
from mltcp_tools.kernel.native import csources, objects

NAMES = ("mltcp", "mltcp_reno", "mltcp_cubic", "flows")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the objects beside them, as the wheel has it."""
    root = tmp_path_factory.mktemp("csrc")
    for name in ("bpf", "kmod"):
        shutil.copytree(csources.source_root() / name, root / name)
    objects.compile_all(root / objects.SHIPPED)
    return root


@pytest.fixture
def installed(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host where that is installed, and no compiler is."""
    for place in (csources, objects):
        monkeypatch.setattr(place, "source_root", lambda: compiled)
    monkeypatch.setenv("CLANG", "/nonexistent/clang")
    return compiled


def test_a_host_with_the_package_needs_no_compiler(installed: Path) -> None:
    for name in NAMES:
        path = objects.build_object(name)
        assert path.parent == installed / objects.SHIPPED
        assert path.read_bytes()[:4] == b"\x7fELF"
    assert objects.objects_shipped()
    assert doctor._shipped().state == "ok"


def test_there_is_an_object_for_every_kernel(installed: Path) -> None:
    for members in ((), objects.OPTIONAL_MEMBERS):
        for name in NAMES:
            defines = [f"-DHAVE_{each.upper()}" for each in members]
            assert objects.shipped_object(name, defines)


def test_edited_sources_are_compiled_anew(installed: Path, tmp_path: Path, monkeypatch) -> None:
    edited = tmp_path / "csrc"
    shutil.copytree(installed, edited)
    with open(edited / "kmod" / "mltcp_core.h", "a") as core:
        core.write("/* edited */\n")
    for place in (csources, objects):
        monkeypatch.setattr(place, "source_root", lambda: edited)
    assert not objects.objects_shipped()
    with pytest.raises(HostError, match="/nonexistent/clang"):
        objects.build_object("mltcp")


def test_a_mistake_in_a_program_is_not_taken_for_missing_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bpf").mkdir()
    (tmp_path / "bpf" / "wrong.bpf.c").write_text(
        "#include <linux/types.h>\n#include <bpf/bpf_helpers.h>\n"
        'int wrong(void) { bpf_printk("%d", nothing); }\n'
    )
    monkeypatch.setattr(objects, "source_root", lambda: tmp_path)
    monkeypatch.setattr(objects, "cache_dir", lambda: tmp_path)
    with pytest.raises(HostError, match=r"could not compile .*wrong\.bpf\.c"):
        objects.build_object("wrong")
