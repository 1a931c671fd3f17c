# SPDX-License-Identifier: BSD-2-Clause
"""The looks of many hosts, which ssh brings, on one page."""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from mltcp_tools.kernel.host.peers import Peer
from mltcp_tools.live.observe.page import Page

_AGAIN_S = 10.0
_SILENT_S = 30.0
_END_S = 5.0


class _Feed:
    """The looks at one host. A command that ends is started again after a while."""

    def __init__(self, host: str, command: Sequence[str], page: Page) -> None:
        self._host, self._command, self._page = host, command, page
        self._peer: Peer | None = None
        self._start_at_s = self._heard_s = 0.0

    def close(self) -> None:
        if self._peer is not None:
            self._peer.process.terminate()
            self._peer.close(_END_S)
            self._peer = None

    def tend(self, selector: selectors.BaseSelector, now_s: float) -> None:
        """Start it where it is due; end one that is silent."""
        if self._peer is None and now_s >= self._start_at_s:
            self._peer = Peer(self._command, quiet=True)
            self._heard_s = now_s
            selector.register(self._peer, selectors.EVENT_READ, self)
        elif self._peer is not None and now_s - self._heard_s > _SILENT_S:
            self._end(selector, now_s, f"silent for {_SILENT_S:.0f} s")

    def read(self, selector: selectors.BaseSelector, now_s: float) -> None:
        """Show what came."""
        assert self._peer is not None
        self._heard_s = now_s
        try:
            looks = self._peer.read()
            for look in looks or ():
                self._page.show(self._host, look)
        except (KeyError, TypeError, ValueError) as error:
            self._end(selector, now_s, f"its answer can't be read: {error}")
            return
        if looks is None:
            self._end(selector, now_s, self._peer.complaint() or "it has ended")

    def _end(self, selector: selectors.BaseSelector, now_s: float, why: str) -> None:
        assert self._peer is not None
        selector.unregister(self._peer)
        self.close()
        self._page.fail(self._host, why)
        self._start_at_s = now_s + _AGAIN_S


def show_all(page: Page, commands: Mapping[str, Sequence[str]]) -> None:
    """Show what these commands print, by host (feed.looks), until a signal ends it.

    Raises HostError where a command is missing here.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        feeds = []
        for host, command in commands.items():
            feeds.append(_Feed(host, command, page))
            stack.callback(feeds[-1].close)
        while True:
            for each in feeds:
                each.tend(selector, time.monotonic())
            for key, _ in selector.select(1.0):
                key.data.read(selector, time.monotonic())
