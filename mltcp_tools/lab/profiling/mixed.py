"""Several jobs behind one name of a capture, told apart by the periods of their connections.

Two jobs on one host look like one that never rests. Each connection has the period of its own job;
where these differ by more than an iteration's bursts explain, there is more than one.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mltcp_tools.errors import UsageError
from mltcp_tools.lab.profiling.capture import Capture, Connection, Series
from mltcp_tools.lab.profiling.from_capture import profile_of_series
from mltcp_tools.lab.profiling.selector import Place, Selector
from mltcp_tools.units import format_seconds

Read = Callable[[Sequence[Selector]], Capture]
"""Reads the capture again, for the jobs that these select."""

# The busiest connections of a job, and the share of its bytes that one must have to count.
_MOST = 24
_LEAST_SHARE = 0.02
# A group of connections below this share of the job's bytes is not a job of its own.
_LEAST_GROUP = 0.1
# Share of the job's bytes whose connections must have a period, for the others to be let go.
_KNOWN = 0.8
_SAME = 0.05
# A connection may carry every second iteration, or one of three bursts: such ratios of periods are
# no proof of another job.
_MULTIPLE = 4
_NEAR = 0.02


@dataclass
class _Group:
    """Connections with one period in seconds."""

    period_s: float
    connections: list[Connection]


def separate(capture: Capture, read: Read, split: bool) -> tuple[Capture, list[str]]:
    """The capture with jobs taken apart that are several, and sentences on what was found.

    split: whether to take them apart, or only to say that they are several.
    """
    jobs = dict(capture.jobs)
    connections = dict(capture.connections)
    said = []
    left_out = capture.left_out
    for job, own in capture.connections.items():
        groups, known = _groups(own, read)
        if len(groups) < 2:
            continue
        selectors = [_selector(group.connections, own) for group in groups]
        periods = " and ".join(format_seconds(group.period_s) for group in groups)
        if not (split and known) or _related(groups):
            named = " ".join(f"--select NAME={each}" for each in selectors)
            said.append(
                f"{job} may be several jobs, as its connections have periods of {periods}; if so,"
                f" name each: {named}"
            )
            continue
        parts = read(selectors)
        del jobs[job], connections[job]
        jobs |= parts.jobs
        connections |= parts.connections
        left_out += _bytes(own) - sum(_bytes(group.connections) for group in groups)
        named = " ".join(f"--select NAME={each}" for each in selectors)
        said.append(
            f"{job} is {len(groups)} jobs, as its connections have periods of {periods}; they are"
            f" {named}"
        )
    return (
        Capture(jobs, connections, capture.packets, left_out, capture.missing, capture.repeated),
        said,
    )


def _groups(connections: Sequence[Connection], read: Read) -> tuple[list[_Group], bool]:
    """The connections by period, the busiest group first, and whether nearly all have one."""
    total = sum(each.bytes for each in connections)
    parts = _parts(connections)
    notable = [place for place, own in parts.items() if _bytes(own) > _LEAST_SHARE * total][:_MOST]
    if len(notable) < 2:
        return [], True
    series = read([Selector(str(place), (place,)) for place in notable]).jobs
    groups: list[_Group] = []
    for place in notable:
        period_s = _period(series.get(str(place)))
        if period_s is None:
            continue
        for group in groups:
            if abs(period_s / group.period_s - 1) < _SAME:
                group.connections += parts[place]
                break
        else:
            groups.append(_Group(period_s, list(parts[place])))
    known = sum(_bytes(group.connections) for group in groups) >= _KNOWN * total
    groups = [each for each in groups if _bytes(each.connections) > _LEAST_GROUP * total]
    return sorted(groups, key=lambda each: -_bytes(each.connections)), known


def _parts(connections: Sequence[Connection]) -> dict[Place, list[Connection]]:
    """The connections by the narrowest place that selects them, the busiest first."""
    counts = Counter(end for each in connections for end in _ends(each))
    found: dict[Place, list[Connection]] = {}
    for each in connections:
        place = min(_ends(each), key=lambda end: (counts[end], end.port))
        found.setdefault(place, []).append(each)
    return dict(sorted(found.items(), key=lambda item: -_bytes(item[1])))


def _ends(connection: Connection) -> set[Place]:
    """The places HOST:PORT that select a connection."""
    return {Place.of(connection.host, port) for port in (connection.port, connection.other_port)}


def _bytes(connections: Sequence[Connection]) -> int:
    return sum(each.bytes for each in connections)


def _period(series: Series | None) -> float | None:
    if series is None:
        return None
    try:
        return profile_of_series("", series).period_s
    except UsageError:
        return None


def _related(groups: Sequence[_Group]) -> bool:
    """Return whether one job could have connections of two of these periods."""
    ratios = [a / b for a in range(1, _MULTIPLE + 1) for b in range(1, _MULTIPLE + 1)]
    return any(
        abs(one.period_s / other.period_s / ratio - 1) < _NEAR
        for one, other in itertools.combinations(groups, 2)
        for ratio in ratios
    )


def _selector(own: Sequence[Connection], everything: Sequence[Connection]) -> Selector:
    """Return the selector of these of a job's connections, called after the first place."""
    all_ends = Counter(end for each in everything for end in _ends(each))
    own_ends = Counter(end for each in own for end in _ends(each))
    # Places of no other connection of the job, those of most connections first.
    left = list(own)
    places: list[Place] = []
    for end, count in sorted(own_ends.items(), key=lambda item: (-item[1], item[0].port)):
        if all_ends[end] == count and any(end in _ends(each) for each in left):
            places.append(end)
            left = [each for each in left if end not in _ends(each)]
    return Selector(str(places[0]), tuple(places))
