# SPDX-License-Identifier: BSD-2-Clause
"""A device that does everything as late as it may: only when something waits for it.

It stands in for torch.cuda: work is put on streams, and done when an event behind it is waited for.
Whatever is read without waiting is as it was before. `Memory` is tensors on the device.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

NOWHERE = torch.device("cuda", 0)


class Event:
    """A point in a stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.is_done = stream, False

    def synchronize(self) -> None:
        self.stream.run(until=lambda: self.is_done)


class Stream:
    def __init__(self, device: Any = None) -> None:
        self._work: deque[Callable[[], None]] = deque()
        self._lock = threading.RLock()
        self.used = False

    def put(self, work: Callable[[], None]) -> None:
        self.used = True
        self._work.append(work)

    def record_event(self) -> Event:
        event = Event(self)
        self.put(lambda: setattr(event, "is_done", True))
        return event

    def wait_event(self, event: Event) -> None:
        self.put(event.synchronize)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        with self._lock:
            while self._work and not until():
                self._work.popleft()()


class Device:
    """The module of the device."""

    def __init__(self) -> None:
        self.Stream = Stream
        self.default, self._own = Stream(), threading.local()

    def current_stream(self, device: Any = None) -> Stream:
        return getattr(self._own, "stream", self.default)

    def set_stream(self, stream: Stream) -> None:
        self._own.stream = stream

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream()
        self.set_stream(stream)
        yield
        self.set_stream(before)

    def memory(self, size: int) -> Memory:
        memory = torch.zeros(size).as_subclass(Memory)
        memory.module = self
        return memory

    def future(self) -> type[torch.futures.Future[Any]]:
        """Futures as they are for such devices: they complete with the setter's current stream."""
        module = self

        class DeviceFuture(torch.futures.Future):  # type: ignore[misc]
            def __init__(self, *, devices: list[torch.device]) -> None:
                super().__init__()
                self.devices = devices

            def set_result(self, result: Any) -> None:
                if self.devices:
                    self.event = module.current_stream().record_event()
                super().set_result(result)

            def wait(self) -> Any:
                found = super().wait()
                if self.devices:
                    module.current_stream().wait_event(self.event)
                return found

        return DeviceFuture


class Memory(torch.Tensor):  # type: ignore[misc]
    """Its copies are put on the current stream; host memory holds NaN before."""

    module: Device

    def record_stream(self, stream: Any) -> None:
        """Nothing is to be done: no memory is used again here."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        module = next(each.module for each in args if isinstance(each, Memory))
        if func == torch.Tensor.device.__get__:
            return NOWHERE
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.empty_like:
                assert kwargs == {"device": "cpu", "pin_memory": True}
                return torch.full_like(args[0].as_subclass(torch.Tensor), float("nan"))
            if func is torch.Tensor.copy_:
                assert kwargs == {"non_blocking": True}
                to, source = (each.as_subclass(torch.Tensor) for each in args)
                module.current_stream().put(lambda: to.copy_(source))
                return args[0]
            return func(*args, **kwargs)
