# SPDX-License-Identifier: BSD-2-Clause
"""Manual pages say what the commands say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mltcp_tools.cli.main import COMMANDS


def made() -> dict[str, str]:
    """The pages of a new process: click keeps the help option of a command called by itself."""
    code = "import json; from mltcp_tools.cli import manual; print(json.dumps(manual.pages()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(run.stdout)
    return found


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return made()


def test_there_is_a_page_for_every_command(pages: dict[str, str]) -> None:
    assert set(pages) == {"mltcp.1", *(f"mltcp-{name}.1" for name in COMMANDS)}
    for name in COMMANDS:
        assert f"\n  {name}  " in pages["mltcp.1"]
    assert "mltcp testbed clean" in pages["mltcp-testbed.1"]
    assert "  130  interrupted" in pages["mltcp.1"]
    assert "tree:1234" in pages["mltcp-attach.1"]


def test_the_terminal_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, pages: dict[str, str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    assert made() == pages


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_pages_format_without_a_warning(tmp_path: Path) -> None:
    write = [sys.executable, "-m", "mltcp_tools.cli.manual", tmp_path / "man1"]
    subprocess.run(write, check=True)
    paths = sorted((tmp_path / "man1").iterdir())
    assert len(paths) == 1 + len(COMMANDS)
    done = subprocess.run(
        ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-Wbreak", "-z", *map(str, paths)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
