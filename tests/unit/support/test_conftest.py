# SPDX-License-Identifier: BSD-2-Clause
"""A BPF test that is skipped where it could run must fail the session."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = (Path(__file__).parents[2] / "conftest.py").read_text()


@pytest.fixture
def project(pytester):
    """A project with our conftest, on a host said to be able to run BPF or not."""

    def make(able, test):
        pytester.makeini(
            "[pytest]\nmarkers =\n unit:\n netns:\n bpf:\naddopts = -p no:cacheprovider"
        )
        folder = pytester.mkdir("netns")
        (folder / "test_it.py").write_text(f"import pytest\n{test}")
        pytester.makeconftest(
            f"{CONFTEST}\ndef can_run_struct_ops():\n    return {able}\nos.geteuid = lambda: 0\n"
        )
        return pytester.runpytest_subprocess()

    return make


SKIPPED = "@pytest.mark.bpf\ndef test_a():\n    pytest.skip('not today')\n"
SKIPPED_BY_MARK = "@pytest.mark.skip(reason='not today')\n@pytest.mark.bpf\ndef test_a(): pass\n"
SKIPPED_WHOLE = "pytest.skip('not today', allow_module_level=True)\n"


@pytest.mark.parametrize("test", [SKIPPED, SKIPPED_BY_MARK, SKIPPED_WHOLE])
def test_skip_fails_where_bpf_works(project, test):
    result = project(True, test)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*not today*"])


@pytest.mark.parametrize("test", [SKIPPED, SKIPPED_BY_MARK])
def test_skip_is_fine_where_bpf_cannot_work(project, test):
    result = project(False, test)
    result.assert_outcomes(skipped=1)
    assert result.ret == 0


def test_other_skips_are_fine(project):
    result = project(True, "def test_a():\n    pytest.skip('no netem')\n")
    result.assert_outcomes(skipped=1)
    assert result.ret == 0
