# SPDX-License-Identifier: BSD-2-Clause
"""A live page of a host's jobs: it serves itself, and needs nothing else.

A browser asks for what is known, once a second; that is the same size however long it runs.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from statistics import median
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.live.observe.feed import Look

SHOWN = 100
"""Latest iterations of a job on the page."""

_KEPT = 1000
_BEST_SHARE = 0.1
_FIGURES = ("id", "name", "flows", "iterations", "iteration_s", "first_s", "overlap", "gain")
_PATIENCE_S = 10.0
_PAGE = "page.html"


def bound_s(iterations: deque[list[float]]) -> float | None:
    """The time of an iteration whose communication never waits: the usual compute time, and the
    communication time that the fastest tenth stays under. None where nothing is known.
    """
    if not iterations:
        return None
    communication = sorted(end - begin for _, begin, end in iterations)
    compute_s = median(begin - start for start, begin, _ in iterations)
    return compute_s + communication[int(len(communication) * _BEST_SHARE)]


class _Server6(ThreadingHTTPServer):
    address_family = socket.AF_INET6


class Page(Closing):
    """Serves the page at host:port to those that know its token. A context manager."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._kept: dict[int, deque[list[float]]] = {}
        """Iterations by the job's id: start, begin, end."""
        self._token = secrets.token_urlsafe(16)
        self._lock = threading.Lock()
        self._data = b""
        self._renew("not looked at yet", [])
        server = _Server6 if ":" in address[0] else ThreadingHTTPServer
        try:
            self._server = server(address, self._handler())
        except OSError as error:
            raise HostError(
                f"{address[0]}:{address[1]} can't serve a page: {error.strerror}."
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        self.url = f"http://{host}:{self._server.server_address[1]}/?token={self._token}"

    def close(self) -> None:
        """Serve no longer; closing twice is fine."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def show(self, look: Look) -> None:
        """Show the jobs as they are now."""
        jobs, kept = [], {}
        for job in look["jobs"]:
            own = self._kept.get(job["id"]) or deque(maxlen=_KEPT)
            own.extend(job["ended"])
            kept[job["id"]] = own
            figures = {name: job[name] for name in _FIGURES}
            jobs.append(figures | {"bound_s": bound_s(own), "ended": list(own)[-SHOWN:]})
        self._kept = kept
        self._renew(look["blind"], jobs)

    def _renew(self, error: str, jobs: list[dict[str, Any]]) -> None:
        document = {"now": time.time(), "error": error, "jobs": jobs}
        data = json.dumps(document, separators=(",", ":")).encode()
        with self._lock:
            self._data = data

    def _answer(self, path: str) -> tuple[int, str, bytes]:
        """The status, type and content for a request."""
        parts = urlsplit(path)
        (token,) = parse_qs(parts.query).get("token", [""])[:1]
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return (
                403,
                "text/plain",
                b"The address lacks the token that `mltcp watch --web` printed.\n",
            )
        if parts.path == "/data":
            with self._lock:
                return 200, "application/json", self._data
        if parts.path == "/":
            return (
                200,
                "text/html; charset=utf-8",
                resources.files(__package__).joinpath(_PAGE).read_bytes(),
            )
        return 404, "text/plain", b"There is nothing here.\n"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _PATIENCE_S

            def do_GET(self) -> None:
                status, kind, content = page._answer(self.path)
                self.send_response(status)
                nonce = secrets.token_urlsafe(16)
                policy = (
                    f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}';"
                    " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
                    " frame-ancestors 'none'"
                )
                content = content.replace(b"@NONCE@", nonce.encode())
                for name, value in (
                    ("Content-Type", kind),
                    ("Content-Length", str(len(content))),
                    ("Content-Security-Policy", policy),
                    ("Cache-Control", "no-store"),
                    ("Referrer-Policy", "no-referrer"),
                    ("X-Content-Type-Options", "nosniff"),
                ):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing: each browser asks every second."""

        return Handler
