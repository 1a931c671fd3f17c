"""The inference server: a small recurrent model behind HTTP.

POST /generate {"context": n, "generated": m} runs the model over n tokens and then for m more. GET
/load says how many requests have come, and how many are being served or wait.
"""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

WIDTH, VOCABULARY = 64, 256


class Model(torch.nn.Module):  # type: ignore[misc]
    """A language model of one GRU; untrained, as what it says doesn't matter here."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.cell = torch.nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)

    def generate(self, context: int, generated: int) -> list[int]:
        """Tokens after a context of so many."""
        with torch.no_grad():
            tokens = torch.arange(max(1, context)).remainder(VOCABULARY).unsqueeze(0)
            found: list[int] = []
            out, state = self.cell(self.embedding(tokens))
            for _ in range(generated):
                token = self.head(out[:, -1]).argmax(dim=-1, keepdim=True)
                found.append(int(token))
                out, state = self.cell(self.embedding(token), state)
        return found


class Counts:
    """The numbers of requests that have arrived and that are in the server."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.arrived = self.inside = 0


def main(port: int) -> None:
    """Serve until killed."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model, counts = Model(), Counts()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, document: object) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            with counts.lock:
                self._answer({"arrived": counts.arrived, "inside": counts.inside})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with counts.lock:
                counts.arrived += 1
                counts.inside += 1
            try:
                self._answer(model.generate(int(asked["context"]), int(asked["generated"])))
            finally:
                with counts.lock:
                    counts.inside -= 1

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    Server(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
