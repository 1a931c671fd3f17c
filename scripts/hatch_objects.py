# SPDX-License-Identifier: BSD-2-Clause
"""Puts the algorithm's headers and the eBPF programs, compiled, into the wheel.

A host that has the programs needs no compiler.

hatchling calls this (pyproject.toml). CO-RE makes an object fit every kernel, but for members that
only some kernels' structs have: there is one object for each. The environment's
MLTCP_REQUIRE_OBJECTS=1 makes a wheel without objects a failure; else a host without clang makes one
that compiles where it is used.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ObjectsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds csrc/kmod and csrc/objects to a wheel that isn't editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from mltcp_tools.base.errors import HostError
        from mltcp_tools.kernel.native.csources import algorithm_headers
        from mltcp_tools.kernel.native.objects import compile_all

        for path in algorithm_headers():
            build_data["force_include"][str(path)] = f"mltcp_tools/csrc/kmod/{path.name}"
        folder = Path(self.directory) / "objects"
        try:
            made = compile_all(folder)
        except HostError as error:
            if os.environ.get("MLTCP_REQUIRE_OBJECTS") == "1":
                raise
            self.app.display_warning(f"The wheel has no compiled eBPF programs: {error}")
            return
        for path in made:
            build_data["force_include"][str(path)] = f"mltcp_tools/csrc/objects/{path.name}"
