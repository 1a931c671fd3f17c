# SPDX-License-Identifier: BSD-2-Clause
"""Reductions of an accelerator's tensors by way of the host's memory.

The copies to the host and back have a stream each. So the accelerator computes and copies the next
buckets while the host reduces one, and only the reducer's thread waits for a copy.
"""

from __future__ import annotations

from typing import Any

import torch

from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.reducer import Reducer


class Staging:
    """Reductions by `reducer` of tensors on `device`, which has streams (CUDA, ROCm, XPU)."""

    def __init__(self, reducer: Reducer, device: torch.device) -> None:
        self._reducer = reducer
        self._module = torch.get_device_module(device)
        self._outward, self._homeward = self._module.Stream(device), self._module.Stream(device)

    def all_reduce(self, tensor: torch.Tensor, how: How) -> torch.futures.Future[Any]:
        """Reduce `tensor` in place, as the current stream has it now.

        Returns without waiting. The future's `wait` has the current stream wait, not the caller.
        """
        self._outward.wait_stream(self._module.current_stream(tensor.device))
        # PyTorch reuses pinned memory only when the copies from and to it are done.
        host = torch.empty_like(tensor, device="cpu", pin_memory=True)
        with self._module.stream(self._outward):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._outward)
        copied = self._outward.record_event()

        def reduce() -> torch.Tensor:
            copied.synchronize()
            self._reducer.reduce_now(host, how)
            # The future completes with what is on the current stream of this thread.
            self._module.set_stream(self._homeward)
            tensor.copy_(host, non_blocking=True)
            tensor.record_stream(self._homeward)
            return tensor

        return self._reducer.run(reduce, devices=[tensor.device])
