# SPDX-License-Identifier: BSD-2-Clause
"""Probes in torch training over Gloo that nobody changed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from train.conftest import Report
from train.jobs import Place, finish, gradient_bytes, training

from mltcp_tools.live.sources.gloo import GlooSource

HERE = [Place(None, "lo")] * 2
WIDTH = 256


def test_training_that_runs_comes_out(report: Report) -> None:
    with (
        GlooSource() as source,
        training(HERE, "127.0.0.1", 29711, 40, WIDTH) as ranks,
    ):
        ranks[0].wait_for(5)
        for rank in ranks:
            assert source.watch(rank.pid)
        ranks[0].wait_for(35)
        source.poll()
        found = [source.metadata(rank.pid) for rank in ranks]
        finish(ranks)
        assert source.lost == 0
    since = sorted(ranks[0].durations_s()[10:30])
    for each in found:
        assert each is not None
        assert each.source == "gloo"
        # Two ranks that reduce in a ring send as much as there is, once.
        assert each.bytes_per_iteration == gradient_bytes(WIDTH)
        assert since[0] * 0.8 <= each.period_s <= since[-1] * 1.2
        assert each.iterations_seen >= 10
        assert 0 < each.gap_s < each.period_s
    assert found[0] is not None
    report.line(
        f"Gloo: iterations of {since[len(since) // 2] * 1e3:.1f} ms come out as"
        f" {found[0].period_s * 1e3:.1f} ms, {found[0].bytes_per_iteration} bytes,"
        f" gap {found[0].gap_s * 1e3:.0f} ms"
    )


def test_probes_change_no_result() -> None:
    losses = []
    for probed in (False, True):
        with (
            GlooSource() as source,
            training(HERE, "127.0.0.1", 29712, 15, WIDTH, 0.02) as ranks,
        ):
            if probed:
                for rank in ranks:
                    source.watch(rank.pid)
            finish(ranks)
            losses.append([rank.losses for rank in ranks])
    assert losses[0] == losses[1]
    assert all(len(each) == 15 for each in losses[0])


def test_an_exception_passes_through_probed_code() -> None:
    """A probe on a function's return would turn it into the end of the process."""
    with (
        GlooSource() as source,
        training(HERE, "127.0.0.1", 29713, 1000, WIDTH, 0.02, stderr=subprocess.PIPE) as ranks,
    ):
        for rank in ranks:
            source.watch(rank.pid)
        ranks[1].wait_for(5)
        ranks[0].process.kill()
        _, errors = ranks[1].process.communicate(timeout=120)
        assert ranks[1].process.returncode == 1
        assert "RuntimeError" in errors
        source.poll()


def test_three_ranks_in_a_ring() -> None:
    """Bytes to each peer are told apart."""
    with (
        GlooSource() as source,
        training(HERE[:1] * 3, "127.0.0.1", 29714, 25, WIDTH) as ranks,
    ):
        for rank in ranks:
            source.watch(rank.pid)
        ranks[0].wait_for(22)
        source.poll()
        for rank in ranks:
            found = source.iterations(rank.pid)
            known = source.metadata(rank.pid)
            assert found is not None
            assert known is not None
            assert known.bytes_per_iteration is not None
            # The ring sends 2 * 2/3 of the gradients in chunks.
            assert found.sent_bytes == pytest.approx(gradient_bytes(WIDTH) * 4 / 3, rel=0.1)
            assert known.bytes_per_iteration <= found.sent_bytes


def test_processes_that_come_and_go() -> None:
    with GlooSource() as source:
        for _ in range(2):
            with training(HERE, "127.0.0.1", 29715, 1000, WIDTH, 0.02) as ranks:
                for rank in ranks:
                    assert source.watch(rank.pid)
                ranks[0].wait_for(len(ranks[0].losses) + 20)
                source.poll()
                assert source.iterations(ranks[0].pid) is not None
                ranks[0].process.send_signal(signal.SIGKILL)
            source.poll()
            for rank in ranks:
                source.forget(rank.pid)
        assert source.watched == frozenset()
        assert len(list(source._probes.bpf[b"sent"].items())) == 0


def test_a_process_without_torch_is_not_watched() -> None:
    with (
        GlooSource() as source,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process,
    ):
        assert not source.watch(process.pid)
        process.kill()
