# SPDX-License-Identifier: BSD-2-Clause
"""A run's report in a real browser: no screen has to scroll sideways but within a wide table."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.run_folders import experiment, make_run

from mltcp_tools.lab.analysis import load_run, make_report

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium isn't installed (scripts/test web)"
)
SCRIPT = """<script>addEventListener('load', () => {
    const wide = [...document.querySelectorAll('.wide')].filter(one => one.offsetParent);
    document.title = JSON.stringify({
        page: document.documentElement.scrollWidth, window: innerWidth,
        scrolled: wide.filter(one => one.scrollWidth > one.clientWidth).length,
        images: [...document.images].map(one => one.naturalWidth && one.width),
        open: document.querySelectorAll('details[open]').length});
})</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with unequal jobs, long names and many repetitions."""
    folder = tmp_path_factory.mktemp("report")
    variants = {f"a-variant-with-a-long-name-{n}": "mltcp" for n in range(6)} | {"cubic": "cubic"}
    document = experiment(variants=variants, iterations=12, repetitions=8)
    document["jobs"].append({"name": "other", "bytes": "1MB", "compute": "1s"})
    run = load_run(make_run(folder, document))
    text = make_report(run).html.replace("</body>", f"{SCRIPT}</body>")
    (folder / "page.html").write_text(text)
    return folder / "page.html"


def measured(page: Path, width: int) -> dict[str, Any]:
    """The page's measures in a window of that width, pixels."""
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={page.parent}/user",
    ]
    command = [CHROMIUM, *flags, f"--window-size={width},900", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    title = re.search("<title>(.*?)</title>", shown)
    assert title
    return dict(json.loads(html.unescape(title[1])))


@pytest.mark.parametrize(("width", "scrolled"), [(1400, False), (600, True)])
def test_only_wide_tables_scroll_sideways(page: Path, width: int, scrolled: bool) -> None:
    found = measured(page, width)
    assert found["window"] == width
    assert found["page"] <= width
    assert (found["scrolled"] > 0) == scrolled
    assert found["open"] == 0
    assert len(found["images"]) == 4
    assert all(0 < image <= width for image in found["images"])
