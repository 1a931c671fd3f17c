# SPDX-License-Identifier: BSD-2-Clause
"""Iterations of jobs from events of flows, and what is shown of them to other processes."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest
from support.watched_backend import event

from mltcp_tools.base.errors import BusyError, MltcpError
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.live.attach import processes
from mltcp_tools.live.observe import follower_state as follower_state_module
from mltcp_tools.live.observe.follower_state import (
    SCHEMA,
    FollowerState,
    killed_followers,
    read_follower_states,
)
from mltcp_tools.live.observe.iterations import JobIterations, Whole
from mltcp_tools.live.observe.relay import Relay, RelayedIterations, open_iterations
from mltcp_tools.live.observe.view import JobView, Views
from mltcp_tools.live.sources.metadata import Metadata

METADATA = Metadata("hooks", 0.5, 1000, 0.2, 0.9, 12)
VIEW = JobView(3, "gpt2", 2, 40, 0.5, 0.6, 0.45, 0.25, METADATA)


def test_flows_that_send_together_are_one_iteration() -> None:
    joined, found = JobIterations(1), []
    for number in range(1, 7):
        for cookie in (1, 2):
            begin_s = number * 0.5 + cookie * 0.01
            found += joined.add(event(1, cookie, number, begin_s, begin_s + 0.1))
    found += joined.flush()
    assert [each.number for each in found] == [1, 2, 3, 4, 5]
    for each in found:
        assert each.bytes == 200
        assert each.duration_s == pytest.approx(0.5)
        assert each.comm_s == pytest.approx(0.11)
        assert {e.cookie for e in each.events} == {1, 2}


def test_reports_before_iterations_are_known_are_left_out() -> None:
    events = [dataclasses.replace(event(1, 1, n, n, n + 0.1), ratio=n > 2) for n in range(1, 5)]
    assert [each.iteration for each in Whole().of(events, [Job(1, "auto")])] == [3, 4]
    told = Job(1, "told", JobParams(gap_s=0.1))
    assert Whole().of(events, [told]) == events


def test_a_connection_per_iteration_is_an_iteration() -> None:
    whole, found, joined = Whole(), [], JobIterations(1)
    for number in range(1, 9):
        for cookie in (2 * number, 2 * number + 1):  # two in parallel, as iperf3 --parallel 2
            burst = event(1, cookie, 1, number * 0.5, number * 0.5 + 0.1)
            found += whole.of([dataclasses.replace(burst, ratio=0.0)], [Job(1, "auto")])
    assert [each.cookie for each in found] == list(range(2, 18))
    iterations = [each for burst in found for each in joined.add(burst)] + [*joined.flush()]
    assert [each.number for each in iterations] == list(range(1, 8))
    # Connections that live on report pieces, whatever came before.
    lasting = [dataclasses.replace(event(1, 99, n, 9 + n, 9.1 + n), ratio=0.0) for n in range(2, 9)]
    assert whole.of(lasting, [Job(1, "auto")]) == []
    fresh = [
        dataclasses.replace(event(1, 50 + n % 2, 1 + n // 2, n, n + 0.1), ratio=0.0)
        for n in range(20)
    ]
    assert Whole().of(fresh, [Job(1, "auto")]) == []


def test_job_does_not_continue_an_ended_one_of_same_id() -> None:
    whole = Whole()
    bursts = [
        dataclasses.replace(event(1, number, 1, number * 0.5, number * 0.5 + 0.1), ratio=0.0)
        for number in range(1, 5)
    ]
    assert whole.of(bursts[:3], [Job(1, "auto")]) == []
    whole.forget(1)
    assert whole.of(bursts[3:], [Job(1, "another")]) == []


def test_what_an_end_cut_short_is_nobodys_best() -> None:
    views = Views()
    for number in range(1, 30):
        views.add([event(1, 1, number, number * 0.5, number * 0.5 + 0.1)])
    for cookie in range(2, 40):  # of a job that was killed: reports that begin within another
        views.add([event(1, cookie, 1, 14.61 + cookie * 1e-6, 14.61 + cookie * 1e-6)])
    views.flush()
    best_s = views.of(Job(1, "a"), 1, None).best_s
    assert best_s == pytest.approx(0.5)


def test_views_show_times_change_and_overlap() -> None:
    views = Views()
    assert views.of(Job(1, "a"), 0, None).iteration_s is None
    for number in range(1, 60):
        period_s = 0.6 if number < 20 else 0.5
        start_s = 12 + (number - 20) * period_s
        views.add([event(1, 1, number, start_s, start_s + 0.1)])
        views.add([event(2, 2, number, start_s + 0.05, start_s + 0.15)])
        views.add([event(3, 3, number, start_s + 0.2, start_s + 0.3)])
        views.add([event(0, 4, number, start_s, start_s + 0.3)])  # nobody's
        if number == 15:
            observed = Job(1, "a", JobParams(mechanisms=()))
            assert views.of(observed, 1, METADATA).change is None  # to what?
    view = views.of(Job(1, "a"), 1, METADATA)
    assert view.iterations == 56  # the first says where the second starts, two may go on
    assert view.first_s == pytest.approx(0.6)
    assert view.iteration_s == pytest.approx(0.5)
    assert view.change == pytest.approx(-1 / 6)
    assert view.ratio == pytest.approx(1)
    assert view.overlap == pytest.approx(0.5)
    other = views.of(Job(3, "c"), 1, None)
    assert (other.overlap, other.change) == (0, None)  # nobody knows what was before
    views.forget(1)
    assert views.of(Job(1, "a"), 1, None).iterations == 0
    assert [each.job_id for each in views.flush()] == [2, 2, 3, 3]


# The follower's state


def test_a_follower_state_is_read_while_its_writer_lives(tmp_path: Path) -> None:
    with FollowerState(tmp_path / "followers") as follower_state:
        assert read_follower_states(tmp_path / "followers") == {}
        follower_state.write([VIEW, dataclasses.replace(VIEW, id=4, metadata=None, overlap=None)])
        found = read_follower_states(tmp_path / "followers")
        assert found[3] == VIEW
        assert found[4].metadata is None
        (path,) = (tmp_path / "followers").iterdir()
        assert path.stat().st_mode & 0o777 == 0o644
    assert read_follower_states(tmp_path / "followers") == {}
    assert read_follower_states(tmp_path / "absent") == {}


def test_of_two_followers_the_better_informed_one_counts(tmp_path: Path) -> None:
    with FollowerState(tmp_path) as follower_state:
        follower_state.write([dataclasses.replace(VIEW, metadata=None)])
        child = os.fork()
        if not child:
            other = FollowerState(tmp_path)
            other.__enter__().write([VIEW])
            time.sleep(60)
        try:
            deadline = time.monotonic() + 20
            while read_follower_states(tmp_path)[3] != VIEW and time.monotonic() < deadline:
                time.sleep(0.01)
            assert read_follower_states(tmp_path) == {3: VIEW}
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert read_follower_states(tmp_path)[3].metadata is None  # its writer is dead
        assert killed_followers(tmp_path) == [child]
    with FollowerState(tmp_path):  # the next one clears up
        assert killed_followers(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_follower_that_is_about_to_end_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has let go of its lease by then, and is no zombie yet: the kernel frees its memory."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    proc = tmp_path / "proc" / "7"
    proc.mkdir(parents=True)
    (tmp_path / "7.json").write_text(json.dumps(document(pid=7)))
    monkeypatch.setattr(follower_state_module, "PROC", proc.parent)
    monkeypatch.setattr(processes, "PROC", proc.parent)
    for flags, killed in ((0, []), (0x4, [7])):
        fields[6] = str(flags)
        (proc / "stat").write_text(f"7 (mltcp) {' '.join(fields)}\n")
        assert killed_followers(tmp_path) == killed


def document(**changes: object) -> dict[str, object]:
    start = (Path("/proc/self/stat").read_text().rpartition(")")[2]).split()[19]
    return {
        "schema": SCHEMA,
        "pid": os.getpid(),
        "start_ticks": int(start),
        "written_s": time.monotonic(),
        "jobs": [dataclasses.asdict(VIEW)],
    } | changes


def entry(**changes: object) -> dict[str, object]:
    return {"jobs": [dataclasses.asdict(VIEW) | changes]}


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "mltcp-followed/2"},
        {"pid": 1},
        {"written_s": 1e12},
        {"written_s": "now"},
        {"jobs": 5},
        entry(id="3"),
        entry(iteration_s=float("nan")),
        entry(metadata={}),
    ],
)
def test_a_damaged_follower_state_is_not_believed(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    path = tmp_path / f"{os.getpid()}.json"
    path.write_text(json.dumps(document()))
    assert read_follower_states(tmp_path) == {3: VIEW}
    path.write_text(json.dumps(document(**changes)))
    assert read_follower_states(tmp_path) == {}


def test_a_planted_follower_state_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / f"{os.getpid()}.json"
    path.write_text(json.dumps(document()))
    path.chmod(0o666)
    assert read_follower_states(tmp_path) == {}
    path.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o644)
    path.symlink_to(tmp_path / "elsewhere")
    assert read_follower_states(tmp_path) == {}
    path.unlink()
    os.mkfifo(path)
    assert read_follower_states(tmp_path) == {}
    path.unlink()
    path.write_bytes(b"\0" * 100)
    assert read_follower_states(tmp_path) == {}


# The relay


def test_events_reach_every_reader(tmp_path: Path) -> None:
    path = tmp_path / "iterations.sock"
    events = [event(1, 1, number, number, number + 0.5) for number in range(1, 4)]
    with Relay(path) as relay:
        assert path.stat().st_mode & 0o777 == 0o600
        with RelayedIterations(path) as one, RelayedIterations(path) as two:
            relay.send(events)
            assert one.poll(5) == events
            assert two.poll(5) == events
            assert one.poll(0) == []
        relay.send(events)  # nobody listens
        reader = RelayedIterations(path)
        relay.send([])
    with pytest.raises(MltcpError, match="has ended"):
        reader.poll(5)
    reader.close()
    assert not path.exists()


def test_a_reader_that_does_not_read_holds_nobody_up(tmp_path: Path) -> None:
    events = [event(1, 1, number, number, number + 0.5) for number in range(1, 3000)]
    with (
        Relay(tmp_path / "s") as relay,
        RelayedIterations(tmp_path / "s") as lazy,
    ):
        relay.send(events)
        assert lazy.poll(0)[0] == events[0]


class Taken(Backend):
    """A backend whose iterations are somebody else's."""

    def iterations(self):  # type: ignore[no-untyped-def]
        raise BusyError("Another process reads them.")


Taken.__abstractmethods__ = frozenset()


def test_a_taken_stream_is_had_from_whoever_relays_it(tmp_path: Path) -> None:
    backend = Taken()  # type: ignore[abstract]
    with pytest.raises(BusyError, match="Another process"):
        open_iterations(backend, tmp_path / "s")
    with Relay(tmp_path / "s") as relay, open_iterations(backend, tmp_path / "s") as stream:
        relay.send([event(1, 1, 1, 1, 2)])
        assert len(stream.poll(5)) == 1
