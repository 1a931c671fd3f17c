# SPDX-License-Identifier: BSD-2-Clause
"""C code called through cffi, compiled by the system's compiler once per version of the sources."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from cffi import FFI

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.locks import exclusive_file
from mltcp_tools.kernel.native.csources import cache_dir, digest, source_root

_loaded: dict[str, ModuleType] = {}
_loading = threading.Lock()
"""Guards `_loaded`: a module loaded twice would have structs that its other half refuses."""


def declarations(header: Path) -> str:
    """Return the declarations of a header, for cffi: all but its directives, which must not be
    needed.
    """
    lines = header.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")) + "\n"


def extension(name: str, declarations: str, preamble: str, *folders: Path) -> tuple[Any, Any]:
    """(lib, ffi): the functions in `declarations`, and cffi's handle to make their structs.

    preamble: C with the headers that define them; kmod/ and bpf/ are among the folders searched.
    folders: of further headers, and of C files that are compiled along. Threads and processes that
    ask for the same at once wait for the first one's. Raises HostError when there is no C compiler
    or no Python header.
    """
    headers = [source_root() / "kmod", source_root() / "bpf"]
    sources = [source for folder in folders for source in sorted(folder.glob("*.c"))]
    read = [file for folder in headers for file in folder.glob("mltcp_*.h")]
    read += [file for folder in folders for file in folder.glob("*.[ch]")]
    module = f"_mltcp_{name}_{digest(read, declarations, preamble)}"
    with _loading:
        if module not in _loaded:
            builder = FFI()
            builder.cdef(declarations)
            # cffi has gcc check every size, offset and type above against the headers.
            builder.set_source(
                module,
                preamble,
                sources=[str(source) for source in sources],
                include_dirs=[str(folder) for folder in (*headers, *folders)],
                extra_compile_args=["-O3", "-Wall", "-Wextra", "-Werror=sign-compare"],
            )
            _loaded[module] = _load(_built(name, module, builder), module)
    return _loaded[module].lib, _loaded[module].ffi


def _built(name: str, module: str, builder: FFI) -> Path:
    """The shared object of a module: from the cache, or compiled into it by one process."""
    cache = cache_dir()
    with exclusive_file(cache / f"{name}.lock"):
        for built in sorted(cache.glob(f"{module}.*.so")):
            return built
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            try:
                compiled = Path(builder.compile(tmpdir=scratch))
            except Exception as error:  # setuptools' and cffi's compile errors share no base
                raise HostError(
                    f"Compiling the {name} failed ({error}); it needs gcc and Python's headers: apt"
                    " install gcc python3-dev"
                ) from error
            built = cache / compiled.name
            os.replace(compiled, built)
            return built


def _load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise HostError(f"{path} can't be loaded; remove it and try again.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
