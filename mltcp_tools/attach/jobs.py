"""Names, ids and parameters of attached jobs."""

from __future__ import annotations

from typing import Any

from mltcp_tools.attach.state import StateFiles
from mltcp_tools.backends.base import Backend, Job


def named_job(
    name: str, backend: Backend, given: dict[str, Any], files: StateFiles | None = None
) -> Job:
    """The job of that name, with the parameters of `given` (fields of JobParams) replaced.

    A name attached on this host keeps its id and its other parameters; a new one gets the lowest id
    that neither the backend nor a state file has.
    """
    raise NotImplementedError
