"""Inference requests, and how long a server needs for one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """arrival_s: seconds since the start. context, generated: tokens."""

    arrival_s: float
    context: int
    generated: int


@dataclass(frozen=True)
class Service:
    """Seconds that a GPU is busy: for a token of context, a generated one, and for a request."""

    context_s: float = 0.0002
    generated_s: float = 0.02
    base_s: float = 0.02

    def seconds(self, request: Request) -> float:
        """Service time of the request."""
        return self.base_s + self.context_s * request.context + self.generated_s * request.generated
