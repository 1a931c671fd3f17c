# SPDX-License-Identifier: BSD-2-Clause
"""Buckets on an accelerator that does everything as late as it may, at ranks that are threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from support.aggregation.threads import Ranks
from train.meeting_group import MeetingGroup

torch = pytest.importorskip("torch", reason="torch is not installed; run scripts/setup --train")

from support.lazy_device import NOWHERE, Device, Stream  # noqa: E402

from mltcp_tools.collectives import ddp  # noqa: E402
from mltcp_tools.collectives.collective import CollectiveError, Setting  # noqa: E402
from mltcp_tools.collectives.gloo import Gloo  # noqa: E402
from mltcp_tools.collectives.reducer import Reducer  # noqa: E402
from mltcp_tools.hooks import Job  # noqa: E402

WORLD, SIZE = 3, 8


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(torch, "get_device_module", lambda where: device)
    monkeypatch.setattr(torch.futures, "Future", device.future())
    return device


class Training:
    """A rank's backward passes: the accelerator computes each bucket's gradients, DDP hands it over
    to the hook, and waits for all futures."""

    def __init__(self, device: Device, reducer: Reducer) -> None:
        self._state = ddp.State(reducer, None, Job())
        self._stream = Stream()  # of this rank's accelerator
        device.set_stream(self._stream)
        self.buckets = [device.memory(SIZE) for _ in range(2)]

    def hand_over(self, number: int, value: float) -> Any:
        bucket = self.buckets[number]
        plain = bucket.as_subclass(torch.Tensor)
        is_handed_over = threading.Event()

        def compute() -> None:
            assert is_handed_over.wait(5), "handing a bucket over waited for its gradients"
            plain.fill_(value)

        self._stream.put(compute)
        handed = SimpleNamespace(
            buffer=lambda: bucket, index=lambda: number, is_last=lambda: number == 1
        )
        future = ddp._average(self._state, handed)
        is_handed_over.set()
        return future

    def gradients(self) -> list[list[float]]:
        """Return the gradients that the optimizer reads."""
        self._stream.run()
        return [bucket.as_subclass(torch.Tensor).tolist() for bucket in self.buckets]


@contextlib.contextmanager
def reducing(collective: type[Gloo], rank: int, gather: Any) -> Iterator[Reducer]:
    group: Any = MeetingGroup(rank, WORLD, gather)
    with contextlib.closing(Reducer(collective, Setting(group, 5.0))) as reducer:
        yield reducer


def at_all_ranks(device: Device, work: Callable[[int, Training], Any], collective: Any) -> Any:
    def be(rank: int, gather: Any) -> Any:
        with reducing(collective, rank, gather) as reducer:
            return work(rank, Training(device, reducer))

    found = Ranks(WORLD).run(be)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def test_each_copy_waits_for_what_it_copies(device: Device) -> None:
    """Gradients differ in each step, so that none of an earlier step may be among the averages."""

    def work(rank: int, training: Training) -> Any:
        found = []
        for step in range(4):
            futures = [training.hand_over(each, rank + 10 * step + each) for each in range(2)]
            assert [future.devices for future in futures] == [[NOWHERE]] * 2
            assert [future.wait() for future in futures] == training.buckets
            found.append(training.gradients())
        return found

    average = (WORLD - 1) / 2
    expected = [[[average + 10 * step + each] * SIZE for each in range(2)] for step in range(4)]
    assert at_all_ranks(device, work, Gloo) == [expected] * WORLD
    assert not device.default.used  # copies have streams of their own


def test_nothing_is_written_back_before_its_sum_is_there(device: Device) -> None:
    """A bucket that the others are late with keeps neither the caller nor the next copy."""
    late, handed_over = threading.Event(), threading.Barrier(WORLD)

    class Late(Gloo):
        def reduce(self, *arguments: Any) -> Any:
            late.wait(20)
            return super().reduce(*arguments)

    def work(rank: int, training: Training) -> Any:
        futures = [training.hand_over(each, rank + each) for each in range(2)]
        handed_over.wait(20)  # which no rank reaches if handing over waits
        before = training.gradients()
        assert not any(future.done() for future in futures)
        handed_over.wait(20)
        late.set()
        for future in futures:
            future.wait()
        return before, training.gradients()

    average = (WORLD - 1) / 2
    for rank, (before, after) in enumerate(at_all_ranks(device, work, Late)):
        assert before == [[rank] * SIZE, [rank + 1] * SIZE]
        assert after == [[average] * SIZE, [average + 1] * SIZE]


def test_failed_reduction_raises_and_leaves_the_gradient(device: Device) -> None:
    class Failing(Gloo):
        def reduce(self, *arguments: Any) -> Any:
            raise CollectiveError("A rank is gone.")

    def work(rank: int, training: Training) -> Any:
        futures = [training.hand_over(each, rank + each) for each in range(2)]
        for future in futures:
            with pytest.raises(Exception, match="A rank is gone"):
                future.wait()
        return training.gradients()

    found = at_all_ranks(device, work, Failing)
    assert found == [[[rank] * SIZE, [rank + 1] * SIZE] for rank in range(WORLD)]


def test_sparse_gradients_there_keep_the_jobs_group() -> None:
    reducer: Any = SimpleNamespace()
    sparse = torch.empty(4, layout=torch.sparse_coo, device="meta")
    assert not ddp.State(reducer, None, Job()).takes(sparse)
