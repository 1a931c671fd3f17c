# SPDX-License-Identifier: BSD-2-Clause
"""Holders of something of the host, until they are closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager that closes itself when it is left."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
