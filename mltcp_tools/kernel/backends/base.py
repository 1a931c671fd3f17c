# SPDX-License-Identifier: BSD-2-Clause
"""The interface of every backend: the same calls for the eBPF programs and for the kernel module.

A backend knows jobs, flows and iterations; it knows nothing of processes. Every call raises a
MltcpError subclass with one sentence on failure, and reports what it read back from the kernel
rather than what it asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.congestion_controls import MECHANISMS
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.native.constants import share

TOTAL_MAX = 2**63 - 1
"""Largest burst_bytes."""

GAP_MAX_S = 3600.0
"""Largest gap_s."""

GAIN_MAX = share("GAIN_MAX")
"""Largest F, so largest sum of slope and intercept (MLTCP_GAIN_MAX in kmod/mltcp_uapi.h)."""


@dataclass(frozen=True)
class JobParams:
    """Parameters of a job's flows. The defaults are those of kmod/mltcp_uapi.h's algorithm.

    burst_bytes: bytes of one iteration of one flow; 0 = each flow learns it, and behaves as its
        base until it has.
    gap_s: seconds with nothing unacknowledged that end an iteration; 0 = each flow learns it.
    slope, intercept: F = slope * ratio + intercept, each 0..8, and so is their sum (MLTCP, arXiv
        2402.09589).
    mechanisms: which of MECHANISMS act; None = the congestion control's own choice: both for mltcp
        and mltcp_dctcp, the increase alone for mltcp_reno and mltcp_cubic (the published
        algorithm). None of them: the flow is the base itself, and learned of nevertheless.
    yield_min, yield_max: with `yield`, the queueing delay above which the flow shrinks its
        window, as a share of a full queue's, at ratio 0 and at ratio 1, each 0..1.
    """

    burst_bytes: int = 0
    gap_s: float = 0.0
    slope: float = share("DEFAULT_SLOPE")
    intercept: float = share("DEFAULT_INTERCEPT")
    mechanisms: tuple[str, ...] | None = None
    yield_min: float = round(share("DEFAULT_YIELD_MIN"), 4)
    yield_max: float = share("DEFAULT_YIELD_MAX")

    @property
    def observed(self) -> bool:
        """Return whether flows are only looked at."""
        return self.mechanisms == ()

    def __post_init__(self) -> None:
        if not 0 <= self.burst_bytes <= TOTAL_MAX:
            raise UsageError(f"burst_bytes is {self.burst_bytes}; it must be 0 to 2^63 - 1.")
        if not 0 <= self.gap_s <= GAP_MAX_S:
            raise UsageError(f"gap_s is {self.gap_s}; it must be 0 to 3600 seconds.")
        for name, high in (
            ("slope", GAIN_MAX),
            ("intercept", GAIN_MAX),
            ("yield_min", 1.0),
            ("yield_max", 1.0),
        ):
            value = getattr(self, name)
            if not 0 <= value <= high:
                raise UsageError(f"{name} is {value}; it must be 0 to {high:g}.")
        if self.slope + self.intercept > GAIN_MAX:
            raise UsageError(
                f"slope and intercept add up to {self.slope + self.intercept:g}; F, which they make"
                f" at the end of a burst, must be at most {GAIN_MAX:g}."
            )
        for mechanism in self.mechanisms or ():
            if mechanism not in MECHANISMS:
                raise UsageError(
                    f"mechanism {mechanism!r} is unknown; there are: {', '.join(MECHANISMS)}."
                )


@dataclass(frozen=True)
class Job:
    """A job known to the kernel side. id: 1..2^32-1. name: for people, at most 63 bytes."""

    id: int
    name: str
    params: JobParams = field(default_factory=JobParams)

    def __post_init__(self) -> None:
        if not 1 <= self.id < 2**32:
            raise UsageError(f"job id is {self.id}; it must be 1 to 2^32 - 1.")
        if not self.name.isprintable() or not 1 <= len(self.name.encode()) <= 63:
            raise UsageError(f"job name {self.name!r} must be 1 to 63 printable bytes of UTF-8.")


@dataclass(frozen=True)
class Flow:
    """One socket as the kernel sees it now.

    cookie: socket cookie. netns: inode of its network namespace. state: TCP state name.
    job_id: job of its tag, 0 when untagged. cwnd, ssthresh: segments. gain: F.
    sent_bytes: acknowledged in the present iteration. ratio: their share of an iteration's bytes,
    0..1, as of the latest step of a 64th. learned_bytes: of an iteration, 0 where nothing was
    learned. learned_gap_s: the usual length, in seconds, of the gaps that may end one; 0 before the
    first. confidence: in these, 0..1; they are used where the job doesn't say and the flow is sure.
    srtt_us: microseconds. retransmits: segments, in the present iteration.
    queue_us: queueing delay, by RTTs; full_queue_us: the one found at losses. bidirectional: the
    flow or its host receives much, so that it doesn't yield. active: False while the flow behaves
    as its base.
    """

    cookie: int
    netns: int
    congestion_control: str
    state: str
    local_addr: str
    local_port: int
    remote_addr: str
    remote_port: int
    job_id: int
    iteration: int
    sent_bytes: int
    ratio: float
    learned_bytes: int
    learned_gap_s: float
    confidence: float
    gain: float
    active: bool
    cwnd: int
    ssthresh: int
    srtt_us: int
    retransmits: int
    queue_us: int
    full_queue_us: int
    acks: int
    losses: int
    yields: int
    bidirectional: bool


@dataclass(frozen=True)
class IterationEvent:
    """One finished iteration of one flow, as the kernel saw it.

    first_ack_s, last_ack_s: CLOCK_MONOTONIC seconds. bytes: acknowledged. retransmits:
    segments, in the iteration. srtt_us, cwnd (segments), ratio (0..1): at the last ACK.
    iteration: from 1, counted since the flow was tagged.
    """

    job_id: int
    cookie: int
    local_addr: str
    local_port: int
    remote_addr: str
    remote_port: int
    iteration: int
    first_ack_s: float
    last_ack_s: float
    bytes: int
    retransmits: int
    srtt_us: int
    cwnd: int
    ratio: float


@dataclass(frozen=True)
class Status:
    """State of a backend, as read back from the kernel.

    loaded: names of its congestion controls that the kernel lists. sockets: number of sockets that
    use each of them, in every network namespace, as Backend.flows() has them. jobs: the jobs set.
    details: facts for people (such as where maps are pinned, and this namespace's default).
    defaults: parameters in force of flows without a job. build: which programs or module these
    are; Backend.build_here() says which this tool would load. Both are empty where nothing is
    loaded.
    """

    backend: str
    loaded: tuple[str, ...]
    sockets: dict[str, int]
    jobs: tuple[Job, ...]
    details: dict[str, object]
    defaults: JobParams | None = None
    build: str = ""


class IterationStream(Closing):
    """Iterations as they finish. A context manager; only events after it was opened arrive.

    One thread may open it and another poll it.
    """

    dropped: int = 0
    """Events the kernel could not deliver because nobody read them in time."""

    @abstractmethod
    def poll(self, timeout_s: float) -> list[IterationEvent]:
        """Wait up to timeout_s seconds for the first event, and return all there are."""


class Backend(ABC):
    """One way to run MLTCP in this host's kernel.

    name: what people call it. names: the congestion controls it offers, the recommended first;
    a kernel that lacks a base algorithm may lack the one built on it.
    """

    name: str
    names: tuple[str, ...]

    @abstractmethod
    def is_present(self) -> bool:
        """Return whether it is in the kernel, as far as this user may see. Takes no privilege."""

    @abstractmethod
    def load(self, names: Sequence[str] | None = None, defaults: JobParams | None = None) -> Status:
        """Register the congestion controls named, or all; those already there stay as they are.

        defaults: parameters of flows that belong to no job (they behave as their base unless
        burst_bytes and gap_s are given). Removes first what a crash left. On any error nothing
        stays behind. The kernel module registers all its names, whichever are asked for.
        Raises HostError, BusyError (a name is taken: the first one keeps it) or UsageError.
        """

    @abstractmethod
    def unload(self, force: bool = False) -> int:
        """Unregister all and forget jobs and tags; return how many sockets still ran them.

        With sockets in use, or one of the names the default of this network namespace, raises
        BusyError unless force. Then jobs are deleted, and those sockets run on with the code they
        have until they close, as their base algorithm, whether they had a job,
        had learned their iterations or had defaults that told them. eBPF programs leave the kernel
        at once all the same; with force, 0 is returned also where the sockets can't be read. A
        kernel module can't leave while a socket or a default holds it: there force ends in a
        BusyError that says which, and unloading again works once they let go; loading again makes
        its flows what they were.
        """

    @abstractmethod
    def status(self) -> Status:
        """Return the backend's state in the kernel. Never raises because nothing is loaded."""

    @abstractmethod
    def loaded(self) -> tuple[str, ...]:
        """Names of its congestion controls that the kernel lists, as in `status`, but at once.

        BusyError where somebody loaded them whom this process can't see.
        """

    @abstractmethod
    def build_here(self) -> str:
        """The build that `load` would put into the kernel; empty where this host has none.

        To compare with Status.build.
        """

    @abstractmethod
    def renew(self, defaults: JobParams | None = None) -> None:
        """Put this tool's programs or module in place of those loaded; jobs stay.

        defaults: of flows without a job; None: those in force. With the eBPF backend sockets run on
        with the old programs until they are given their congestion control again; a module must be
        let go by all of them before, or BusyError. attach.replacement does the rest.
        """

    @abstractmethod
    def set_job(self, job: Job) -> None:
        """Create the job, or give it new parameters, which its flows follow from now on.

        A flow takes its decisions at each 64th of its burst: it may act on the old ones till then.
        """

    @abstractmethod
    def delete_job(self, job_id: int) -> None:
        """Forget the job; flows still tagged with it go on as flows without a job."""

    @abstractmethod
    def jobs(self) -> list[Job]:
        """The jobs set, by id."""

    @abstractmethod
    def tag(self, fd: int, job_id: int) -> None:
        """Give the socket behind this process's descriptor to a job that is set.

        It must be a connected TCP socket that already runs one of this backend's congestion
        controls; it may live in another network namespace. A new tag replaces the old one. The
        tag goes when the socket closes or takes another congestion control. Raises UsageError
        for what can't be tagged.
        """

    @abstractmethod
    def untag(self, fd: int) -> None:
        """Take the tag off the TCP socket behind the descriptor; one without a tag is no error."""

    @abstractmethod
    def flows(self) -> list[Flow]:
        """Every socket that one of this backend's congestion controls drives, in any namespace.

        The kernel module shows the flows of all namespaces only to who has CAP_NET_ADMIN in the
        initial one; others see those of their own.
        """

    @abstractmethod
    def iterations(self) -> IterationStream:
        """Open the stream of finished iterations.

        The eBPF backend has one reader at a time: BusyError otherwise. The kernel module sends
        them to all readers in the network namespace whose job it is; those of a flow without a job
        to the flow's own.
        """
