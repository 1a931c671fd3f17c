# SPDX-License-Identifier: BSD-2-Clause
"""The table of supported systems, from what tests say."""

from __future__ import annotations

import supported


def test_every_result_is_of_tests_that_are_there() -> None:
    for arguments in supported.TESTS.values():
        file, _, name = arguments[0].partition("::")
        path = supported.CHECKOUT / file
        assert path.exists()
        text = path.read_text()
        assert f"def {name.partition('[')[0]}(" in text or "import *" in text
    text = (supported.CHECKOUT / "tests/netns/test_backends.py").read_text()
    assert "def test_iterations_are_counted_to_the_byte(" in text
