"""The load: requests of a trace, compressed in time, each answered or late; one line for each."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from mltcp_tools.clusters.requests import Request
from mltcp_tools.clusters.traces import read_requests


def send(requests: Sequence[Request], port: int, faster: float, seconds: float, log: Path) -> None:
    """Send them at their times, `faster` times as fast, for so many seconds."""
    began = time.monotonic()
    out = log.open("w", buffering=1)
    lock = threading.Lock()
    threads = []

    def one(request: Request) -> None:
        at = time.time()
        body = {"context": min(request.context, 256), "generated": min(request.generated, 32)}
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/generate", json.dumps(body))
            connection.getresponse().read()
            took: float | None = time.time() - at
        except OSError:
            took = None
        with lock:
            out.write(json.dumps({"time": at, "took": took}) + "\n")

    for request in requests:
        at_s = request.arrival_s / faster
        if at_s > seconds:
            break
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        threads.append(threading.Thread(target=one, args=(request,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    send(
        read_requests(sys.argv[1]),
        int(sys.argv[2]),
        float(sys.argv[3]),
        float(sys.argv[4]),
        Path(sys.argv[5]),
    )
