# SPDX-License-Identifier: BSD-2-Clause
"""Client and server over loopback: what is sent, what is measured, and the command's options."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from support.emulated import run

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.host.facts import available_congestion_controls
from mltcp_tools.lab.emulator.client import Client, ClientOptions
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.emulator.protocol import BurstHeader, Confirmation, Hello, Welcome
from mltcp_tools.lab.emulator.report import ClientResult


@pytest.mark.parametrize("direction", ["send", "both"])
@pytest.mark.parametrize(("flows", "bursts"), [(1, 1), (3, 1), (1, 4), (5, 3)])
def test_iterations_add_up(port: int, direction: str, flows: int, bursts: int) -> None:
    spec = {"direction": direction, "flows": flows, "bursts": bursts, "jitter": 0.2, "seed": 9}
    result = run(port, **spec)
    assert [i.iteration for i in result.iterations] == [1, 2, 3]
    planned = compute_times(JobSpec(300_001, 0.005, iterations=3, jitter=0.2, seed=9))
    assert [i.compute_s for i in result.iterations] == list(planned)
    end = result.iterations[0].start
    for iteration in result.iterations:
        assert iteration.start == end
        assert iteration.bytes == 300_001
        assert [b.burst for b in iteration.bursts] == list(range(1, bursts + 1))
        for burst in iteration.bursts:
            assert end + iteration.compute_s / bursts <= burst.start < burst.end
            end = burst.end
        assert iteration.end == end


def test_iteration_sends_exactly_its_bytes(port: int) -> None:
    result = run(port, trace_s=0.001, bytes_per_iteration=1_000_000)
    by_iteration = [[s for s in result.samples if s.iteration == n] for n in (1, 2, 3)]
    for samples in by_iteration:
        assert [s.bytes_acked for s in samples] == sorted(s.bytes_acked for s in samples)
        assert samples[0].bytes_acked == 0
        # The confirmation comes with the last acknowledgement, or right behind it.
        assert samples[-1].bytes_acked == 1_000_000
        assert all(s.cwnd > 0 for s in samples)


def acked(result: ClientResult, iteration: int, flows: int) -> list[int]:
    """Bytes that each flow got across in an iteration."""
    samples = [s for s in result.samples if s.iteration == iteration]
    return [max((s.bytes_acked for s in samples if s.flow == n), default=0) for n in range(flows)]


def test_flows_carry_their_shares(port: int) -> None:
    result = run(port, trace_s=0.001, bytes_per_iteration=600_000, flows=3, weights=(4, 1, 1))
    for iteration in result.iterations:
        assert acked(result, iteration.iteration, 3) == [400_000, 100_000, 100_000]
        (burst,) = iteration.bursts
        assert burst.start < burst.first_end <= burst.end


@pytest.mark.parametrize("chunk", [64, 1000, 65_536, 299_957, 300_001, 10_000_000])
def test_ends_that_send_in_chunks_get_everything_across(port: int, chunk: int) -> None:
    result = run(port, direction="both", chunk=chunk, flows=2)
    assert [i.bytes for i in result.iterations] == [300_001] * 3


def test_the_next_chunk_waits_for_the_one_that_is_to_come() -> None:
    chunk, size = 10_000, 25_000
    with socket.create_server(("127.0.0.1", 0)) as listener:
        spec = JobSpec(size, 0.0, iterations=1, direction="both", chunk=chunk)
        client = Client(spec, ClientOptions("127.0.0.1", listener.getsockname()[1]))
        thread = threading.Thread(target=client.run)
        thread.start()
        peer, _ = listener.accept()
        with peer:
            assert Hello.unpack(peer.recv(Hello.LAYOUT.size, socket.MSG_WAITALL)).chunk == chunk
            peer.sendall(Welcome(True, "reno").pack())
            header = BurstHeader.unpack(peer.recv(BurstHeader.LAYOUT.size, socket.MSG_WAITALL))
            left = header.payload_up()
            for part in (chunk, chunk, header.payload_down() - 2 * chunk):
                due = min(left, chunk)
                left -= len(peer.recv(due, socket.MSG_WAITALL))
                peer.settimeout(0.1)
                with pytest.raises(TimeoutError):  # nothing more until our chunk has come
                    peer.recv(1)
                peer.settimeout(None)
                peer.sendall(bytes(part))
            assert left == 0
            peer.sendall(Confirmation(header.number, size, 0).pack())
        thread.join()
    assert [i.bytes for i in client.result.iterations] == [size]


def test_duration_ends_the_job(port: int) -> None:
    result = run(port, iterations=None, duration_s=0.1, compute_s=0.03)
    first, last = result.iterations[0], result.iterations[-1]
    assert last.end - first.start >= 0.1
    assert last.start - first.start < 0.1


def test_congestion_control_is_read_back(port: int) -> None:
    # Reno is in every kernel, and nobody needs a privilege for it.
    assert "reno" in available_congestion_controls()
    assert run(port, cc="reno").parameters["cc"] == "reno"


def test_unknown_congestion_control(port: int) -> None:
    with pytest.raises(HostError, match=r"no congestion control 'nosuch'; choose one of .*reno"):
        run(port, cc="nosuch")


def test_server_names_what_it_lacks(port: int) -> None:
    hello = Hello("both", "nosuch")
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(hello.pack())
        answer = Welcome.unpack(sock.recv(Welcome.LAYOUT.size, socket.MSG_WAITALL))
    assert not answer.accepted
    assert "no congestion control 'nosuch'" in answer.text


def test_command_line_reaches_the_job(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        f"lab emulate client 127.0.0.1 --port {port} --bytes 20kB --compute 1ms --iterations 4"
        " --jitter 5% --seed 7 --flows 2 --bursts 2 --cc reno --direction both --job a"
        " --trace 5ms --json --period 20ms --shift 3ms"
    )
    assert main(arguments.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["job"] == "a"
    assert document["error"] is None
    assert len(document["iterations"]) == 4
    assert {sample["flow"] for sample in document["samples"]} == {0, 1}
    time_shifts = {"period_s": 0.02, "shift_s": 0.003}
    given: dict[str, object] = {
        "bytes_per_iteration": 20_000,
        "compute_s": 0.001,
        "iterations": 4,
        "duration_s": None,
        "jitter": 0.05,
        "seed": 7,
        "flows": 2,
        "bursts": 2,
        "cc": "reno",
        "direction": "both",
        "host": "127.0.0.1",
        "port": port,
        "trace_s": 0.005,
    }
    assert document["parameters"].items() >= given.items()
    assert document["parameters"]["time_shifts"].items() >= time_shifts.items()
