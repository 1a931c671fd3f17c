# SPDX-License-Identifier: BSD-2-Clause
"""The backend interface on the real kernel: the same tests for every backend it can run."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, collect, uncounted
from netns.connections import TCP_CONGESTION, bottleneck, connection, send_burst

from mltcp_tools.base.errors import BusyError, MltcpError, UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.congestion_controls import STANDARD
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.host.descriptors import cookie_of
from mltcp_tools.kernel.native.requirements import may_miscount
from mltcp_tools.lab.testbed.namespaces import inside

GAP_S = 0.15
BURST = 200_000
STEP = 1 / 64  # a flow's ratio is that of the last step of its burst (MLTCP_STEPS)


backend = backend_fixture()


def current(sender: socket.socket) -> str:
    name: bytes = sender.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


COUNTING = pytest.mark.parametrize("name", ["mltcp", "mltcp_cubic"])
"""Bytes are counted as ACKs come, and where the window grows."""


def test_load_status_unload(backend: Backend) -> None:
    assert not backend.is_present()
    status = backend.load()
    assert set(STANDARD) <= set(status.loaded) <= set(backend.names)
    assert set(status.loaded) <= set(facts.available_congestion_controls())
    assert status.sockets == dict.fromkeys(status.loaded, 0)
    assert backend.is_present()
    assert get_backend().name == backend.name
    assert status == backend.load()  # again is no error
    with pytest.raises(BusyError, match="unload"):
        backend.load(defaults=JobParams(slope=1))
    with pytest.raises(UsageError, match="no bbr"):
        backend.load(["bbr"])
    assert backend.unload() == 0
    assert not set(backend.names) & set(facts.available_congestion_controls())
    assert backend.status().loaded == ()
    assert backend.unload() == 0


@COUNTING
def test_iterations_are_counted_to_the_byte(
    backend: Backend, name: str, supports: Callable[..., None]
) -> None:
    backend.load()
    backend.set_job(Job(7, "seven", JobParams(burst_bytes=BURST, gap_s=GAP_S)))
    with bottleneck() as network, backend.iterations() as stream:
        with connection(network, name) as sender:
            backend.tag(sender.fileno(), 7)
            for _ in range(3):
                time.sleep(2 * GAP_S)
                send_burst(sender, BURST)
            (flow,) = backend.flows()
            assert flow.job_id == 7
            assert flow.congestion_control == name
            late = uncounted(backend)
            assert flow.iteration == 3
            assert flow.sent_bytes == pytest.approx(BURST, abs=late)
            assert flow.ratio == pytest.approx(1.0, abs=late / BURST)
            assert flow.gain == pytest.approx(2.0, abs=1e-3 + 2 * late / BURST)
            assert (flow.state, flow.active) == ("established", True)
            local = sender.getsockname()
        events = collect(stream, 3)
    assert [event.iteration for event in events] == [1, 2, 3]
    assert [event.bytes for event in events] == pytest.approx([BURST] * 3, abs=late)
    assert sum(event.bytes for event in events) == 3 * BURST
    for event in events:
        assert (event.job_id, event.cookie) == (7, flow.cookie)
        assert (event.local_addr, event.local_port) == local
        assert event.ratio == pytest.approx(1.0, abs=late / BURST)
        assert event.first_ack_s < event.last_ack_s
    assert events[0].last_ack_s < events[1].first_ack_s
    assert stream.dropped == 0
    part = {"bpf": "ebpf", "kmod": "module"}[backend.name]
    supports(**{part: "run"})


def test_an_untagged_flow_is_its_base(backend: Backend) -> None:
    backend.load()
    with bottleneck() as network, backend.iterations() as stream:
        for name in STANDARD:
            with connection(network, name) as sender:
                assert current(sender) == name
                for _ in range(2):
                    send_burst(sender, BURST)
                    time.sleep(GAP_S)
                (flow,) = [each for each in backend.flows() if each.state == "established"]
                assert flow.congestion_control == name
                assert (flow.job_id, flow.active, flow.gain) == (0, False, 1.0)
        assert stream.poll(0.2) == []


def test_defaults_are_for_flows_without_a_job(backend: Backend) -> None:
    defaults = JobParams(burst_bytes=2 * BURST, gap_s=GAP_S, slope=3, intercept=0.5)
    backend.load(defaults=defaults)
    with bottleneck() as network, connection(network, "mltcp") as sender:
        send_burst(sender, BURST)
        (flow,) = backend.flows()
        assert (flow.job_id, flow.active) == (0, False)  # before its first pause
        time.sleep(2 * GAP_S)
        send_burst(sender, BURST)
        (flow,) = backend.flows()
        assert (flow.job_id, flow.active) == (0, True)
        assert flow.ratio == pytest.approx(0.5, abs=STEP)
        assert flow.gain == pytest.approx(3 * flow.ratio + 0.5, abs=1e-3)


def test_retransmissions_before_the_tag_count_in_no_iteration(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "late", JobParams(burst_bytes=1000, gap_s=GAP_S)))
    # So slow that a debug kernel in an emulated machine fills the queue, too.
    with bottleneck(10_000_000, 5_000) as network, backend.iterations() as stream:
        with connection(network, "mltcp_reno") as sender:
            send_burst(sender, 5 * BURST)
            (flow,) = backend.flows()
            assert flow.retransmits > 0, "no loss, so nothing to leave out"
            backend.tag(sender.fileno(), 1)
            time.sleep(GAP_S)  # else the next step sees it
            send_burst(sender, 1000)
        (event,) = collect(stream, 1)
    assert event.bytes == pytest.approx(1000, abs=uncounted(backend))
    assert event.retransmits == 0


def test_flows_yield_and_agree_on_their_paths_full_queue(backend: Backend) -> None:
    """Also one that never lost: it knows the queue from the one that did."""
    backend.load()
    backend.set_job(Job(1, "queueing", JobParams(burst_bytes=5 * BURST, gap_s=GAP_S)))
    with bottleneck(10_000_000, 30_000) as network, connection(network, "mltcp") as loser:
        backend.tag(loser.fileno(), 1)
        for _ in range(2):
            send_burst(loser, 5 * BURST)
            time.sleep(2 * GAP_S)
        (before,) = backend.flows()
        assert before.losses > 0, "no loss, so nothing to know"
        assert before.full_queue_us > 0
        assert before.yields > 0
        with connection(network, "mltcp") as sibling:
            backend.tag(sibling.fileno(), 1)
            send_burst(sibling, BURST // 10)
            flows = {flow.cookie: flow for flow in backend.flows()}
            known = flows.pop(before.cookie).full_queue_us
            ((_, flow),) = flows.items()
            assert flow.losses == 0
            assert flow.full_queue_us == known


def test_flows_of_a_job_have_the_gain_of_the_furthest(backend: Backend) -> None:
    backend.load()
    for job in (1, 2):
        backend.set_job(Job(job, f"j{job}", JobParams(burst_bytes=BURST, gap_s=100 * GAP_S)))
    with bottleneck() as network, ExitStack() as stack:
        senders = [stack.enter_context(connection(network, "mltcp_reno")) for _ in range(3)]
        for sender, job in zip(senders, (1, 1, 2), strict=True):
            backend.tag(sender.fileno(), job)
            send_burst(sender, BURST // 16)
        for sender, size in zip(senders, (BURST // 2, BURST // 16, BURST // 16), strict=True):
            send_burst(sender, size)
        gains = {flow.cookie: flow.gain for flow in backend.flows()}
        furthest, sibling, other = (gains[cookie_of(sender)] for sender in senders)
    assert sibling == furthest > other


def test_flows_without_a_job_report_their_last_iteration_too(backend: Backend) -> None:
    backend.load(defaults=JobParams(burst_bytes=BURST, gap_s=10 * GAP_S))
    with bottleneck() as network:
        # Without a job, a flow belongs to its own network namespace.
        with inside(network.senders[0]):
            stream = backend.iterations()
        with stream:
            with connection(network, "mltcp_cubic") as sender:
                send_burst(sender, BURST)
                time.sleep(20 * GAP_S)  # more than any slow machine's pauses within a burst
                send_burst(sender, BURST)
            events = collect(stream, 2)
    assert [event.job_id for event in events] == [0, 0]
    late = uncounted(backend)
    assert [event.bytes for event in events] == pytest.approx([BURST, BURST], abs=late)
    assert sum(event.bytes for event in events) == 2 * BURST  # without the FIN


def test_a_job_changed_while_it_runs_takes_effect(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "a", JobParams(burst_bytes=BURST, gap_s=GAP_S)))
    with bottleneck() as network, connection(network, "mltcp") as sender:
        backend.tag(sender.fileno(), 1)
        send_burst(sender, BURST)
        params = JobParams(burst_bytes=4 * BURST, gap_s=GAP_S, mechanisms=("increase",))
        changed = Job(1, "a", params)
        backend.set_job(changed)
        assert backend.jobs() == [changed]
        assert backend.status().jobs == (changed,)
        time.sleep(2 * GAP_S)  # a total holds for an iteration
        send_burst(sender, BURST)
        (flow,) = backend.flows()
        assert flow.ratio == pytest.approx(0.25, abs=STEP)


def test_a_live_flow_switches_there_and_back_and_loses_its_tag(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "a", JobParams(burst_bytes=BURST, gap_s=GAP_S)))
    with bottleneck() as network, connection(network, "reno") as sender:
        send_burst(sender, BURST)
        for name in STANDARD:
            sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
            assert current(sender) == name
            send_burst(sender, BURST)
            (flow,) = backend.flows()
            assert flow.job_id == 0
            backend.tag(sender.fileno(), 1)
            assert backend.flows()[0].job_id == 1
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"reno")
        send_burst(sender, BURST)
        assert backend.flows() == []
        backend.untag(sender.fileno())  # nothing to take off


def test_ipv6_flows_are_reported(backend: Backend) -> None:
    backend.load()
    backend.set_job(Job(1, "six", JobParams(burst_bytes=1000, gap_s=GAP_S)))
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as listener,
        socket.socket(socket.AF_INET6) as sender,
        backend.iterations() as stream,
    ):
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp")
        sender.connect(listener.getsockname())
        peer, _ = listener.accept()
        backend.tag(sender.fileno(), 1)
        send_burst(sender, 1000)
        (flow,) = backend.flows()
        assert (flow.remote_addr, flow.remote_port) == listener.getsockname()[:2]
        sender.close()
        peer.close()
        (event,) = collect(stream, 1)
        assert (event.remote_addr, event.bytes) == ("::1", 1000)


def test_unload_refuses_while_in_use_or_the_default(backend: Backend) -> None:
    backend.load()
    with bottleneck() as network, connection(network, "mltcp") as sender:
        send_burst(sender, BURST)
        with pytest.raises(BusyError, match=r"1 sockets.*1 by mltcp.*--force"):
            backend.unload()
        assert backend.status().sockets["mltcp"] == 1
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"reno")
    setting = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    before = setting.read_text()
    try:
        setting.write_text("mltcp")
        with pytest.raises(BusyError, match="default"):
            backend.unload()
    finally:
        setting.write_text(before)
    assert backend.unload() == 0


def test_tagging_refuses_what_is_no_connected_socket_of_ours(
    backend: Backend, tmp_path: Path
) -> None:
    backend.load()
    backend.set_job(Job(1, "a"))
    with ExitStack() as stack:
        datagram = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        local, other_end = socket.socketpair()
        stack.callback(local.close)
        stack.callback(other_end.close)
        file = stack.enter_context(open(tmp_path / "file", "w"))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unconnected, sender = (stack.enter_context(socket.socket()) for _ in range(2))
        for each in (listener, unconnected, sender):
            each.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"mltcp")
        sender.connect(listener.getsockname())
        with pytest.raises(UsageError, match="no job 2"):
            backend.tag(sender.fileno(), 2)
        backend.tag(sender.fileno(), 1)
        assert {flow.job_id for flow in backend.flows()} == {0, 1}  # and its peer

        refused = [
            (file.fileno(), "is not a socket"),
            (1_000_000, "is not a socket"),
            (-1, "is not a socket"),
            (2**40, "is not a socket"),
            (datagram.fileno(), "is not a TCP socket"),
            (local.fileno(), "is not a TCP socket"),
        ]
        for descriptor, why in refused:
            for change in (lambda fd: backend.tag(fd, 1), backend.untag):
                with pytest.raises(UsageError, match=f"Descriptor {descriptor} {why}"):
                    change(descriptor)
        for each in (listener, unconnected):
            with pytest.raises(UsageError, match="without a connection"):
                backend.tag(each.fileno(), 1)
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"cubic")
        with pytest.raises(UsageError, match="runs cubic; switch it to mltcp or"):
            backend.tag(sender.fileno(), 1)


def test_jobs_without_anything_loaded(backend: Backend) -> None:
    assert backend.jobs() == []
    assert backend.flows() == []
    for ask in (
        lambda: backend.set_job(Job(1, "a")),
        lambda: backend.delete_job(1),
        lambda: backend.tag(0, 1),
        backend.iterations,
    ):
        with pytest.raises(MltcpError, match="isn't loaded; run `mltcp load`"):
            ask()


def test_the_table_of_jobs_has_an_end(backend: Backend) -> None:
    backend.load()
    for number in range(1, 4097):
        backend.set_job(Job(number, "many"))
    with pytest.raises(BusyError, match="full"):
        backend.set_job(Job(4097, "one too many"))
    assert [job.id for job in backend.jobs()] == list(range(1, 4097))
    for absent in (0, 4999, 2**32):
        with pytest.raises(UsageError, match=f"no job {absent}"):
            backend.delete_job(absent)


def test_the_commands(
    backend: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLTCP_DEBUG", raising=False)

    def mltcp(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(arguments), *capsys.readouterr()

    assert f"{backend.name}: nothing is loaded\n" in mltcp("status")[1]
    code, shown, said = mltcp("load", "--backend", backend.name, "--json", "mltcp", "--slope", "2")
    assert code == 0
    assert said.rstrip("\n") == (may_miscount() if backend.name == "bpf" else "")
    assert "mltcp" in json.loads(shown)["loaded"]
    with bottleneck() as network, connection(network, "mltcp") as sender:
        backend.set_job(Job(9, "nine", JobParams(burst_bytes=BURST, gap_s=1)))
        backend.tag(sender.fileno(), 9)
        send_burst(sender, BURST // 2)
        table = mltcp("status", "flows")[1].splitlines()
        row = dict(zip(table[0].split(), table[1].split(), strict=False))
        assert (row["JOB"], row["CC"]) == ("nine", "mltcp")
        (flow,) = json.loads(mltcp("status", "flows", "--json")[1])
        assert flow["ratio"] == pytest.approx(0.5, abs=STEP)
        statuses = {each["backend"]: each for each in json.loads(mltcp("status", "--json")[1])}
        assert statuses[backend.name]["sockets"]["mltcp"] == 1
        assert re.search(r"\b9 +nine\b", mltcp("status", "--backend", backend.name)[1])
        code, _, said = mltcp("unload")
        assert (code, said.count("\n")) == (BusyError.exit_code, 1)
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"reno")
    assert mltcp("unload") == (0, "", "Unloaded.\n")


def test_loading_in_parallel_ends_loaded_once(backend: Backend) -> None:
    code = "from mltcp_tools.kernel.backends import get_backend"
    code += f"; get_backend({backend.name!r}).load()"
    with ExitStack() as stack:
        loads = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", code])) for _ in range(3)
        ]
    assert [load.returncode for load in loads] == [0] * 3
    assert set(STANDARD) <= set(backend.status().loaded)
    listed = facts.available_congestion_controls()
    assert sorted(set(listed)) == sorted(listed)
