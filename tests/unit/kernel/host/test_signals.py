# SPDX-License-Identifier: BSD-2-Clause
"""Signals as something that a loop looks at."""

from __future__ import annotations

import select
import signal

import pytest

from mltcp_tools.kernel.host.signals import Signals


def readable(signals: Signals) -> bool:
    return bool(select.select([signals], [], [], 0)[0])


def test_they_are_noted_and_taken() -> None:
    before = signal.getsignal(signal.SIGHUP)
    with Signals(signal.SIGHUP, signal.SIGTERM) as signals:
        assert not readable(signals)
        assert signals.take() == []
        for _ in range(2):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            assert readable(signals)
            assert signals.take() == [signal.SIGHUP, signal.SIGTERM]
            assert not readable(signals)
    assert signal.getsignal(signal.SIGHUP) == before


def test_once_one_came_every_check_says_so() -> None:
    with Signals() as signals:
        signals.check()
        signal.raise_signal(signal.SIGTERM)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signals.check()
            assert readable(signals)


def test_no_number_of_them_is_too_many() -> None:
    with Signals() as signals:
        for _ in range(100_000):  # more than a pipe holds
            signal.raise_signal(signal.SIGINT)
        assert len(signals.take()) == 100_000
