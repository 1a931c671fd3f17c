"""Client and server over loopback: what is measured, and what happens when one side misbehaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.emulator_processes import Emulator, read_document

from mltcp_tools.cli.main import main
from mltcp_tools.emulator.client import Client, ClientOptions
from mltcp_tools.emulator.job import JobSpec, compute_times
from mltcp_tools.emulator.protocol import BurstHeader, Confirmation, Hello, Welcome
from mltcp_tools.emulator.report import Result
from mltcp_tools.emulator.server import Server
from mltcp_tools.errors import BusyError, HostError, MltcpError, UsageError
from mltcp_tools.host.facts import available_congestion_controls


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Emulator, int]]:
    with Emulator("server", "--port", "0", "--timeout", "1s") as process:
        yield process, process.port()


@pytest.fixture
def server(running: tuple[Emulator, int]) -> Emulator:
    """The server, having said nothing yet."""
    running[0].said = ""
    return running[0]


@pytest.fixture
def port(running: tuple[Emulator, int]) -> int:
    return running[1]


def run(port: int, host: str = "127.0.0.1", **changes: Any) -> Result:
    values: dict[str, Any] = {"bytes_per_iteration": 300_001, "compute_s": 0.005, "iterations": 3}
    options = {k: changes.pop(k) for k in ("timeout_s", "trace_s") if k in changes}
    client = Client(JobSpec(**(values | changes)), ClientOptions(host, port, **options))
    client.run()
    return client.result


@pytest.mark.parametrize("direction", ["send", "receive", "both"])
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


def acked(result: Result, iteration: int, flows: int) -> list[int]:
    """Bytes that each flow got across in an iteration."""
    samples = [s for s in result.samples if s.iteration == iteration]
    return [max((s.bytes_acked for s in samples if s.flow == n), default=0) for n in range(flows)]


def test_flows_carry_their_shares_and_others_idle(port: int) -> None:
    ways = {"flows": 3, "weights": (4, 1, 1), "active": 2}
    result = run(port, trace_s=0.001, bytes_per_iteration=600_000, iterations=4, **ways)
    assert [acked(result, n, 3) for n in (1, 2, 3, 4)] == [
        [480_000, 120_000, 0],
        [480_000, 0, 120_000],
        [0, 300_000, 300_000],
        [480_000, 120_000, 0],
    ]
    for iteration in result.iterations:
        (burst,) = iteration.bursts
        assert burst.start < burst.first_end <= burst.end


@pytest.mark.parametrize("chunk", [64, 1000, 65_536, 299_957, 300_001, 10_000_000])
def test_ends_that_take_turns_get_everything_across(port: int, chunk: int) -> None:
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


def test_a_job_of_limited_rate_is_no_faster(port: int) -> None:
    result = run(port, rate_bps=100_000_000, flows=2, iterations=2, bytes_per_iteration=500_000)
    for iteration in result.iterations:
        assert iteration.communication_s >= 500_000 * 8 / 100_000_000


def test_smallest_and_many_flows(port: int) -> None:
    result = run(port, bytes_per_iteration=64 * 100, flows=100, compute_s=0.0)
    assert sum(i.bytes for i in result.iterations) == 3 * 64 * 100


def test_ipv6(port: int) -> None:
    assert len(run(port, host="::1").iterations) == 3


def test_duration_ends_the_job(port: int) -> None:
    result = run(port, iterations=None, duration_s=0.1, compute_s=0.03)
    first, last = result.iterations[0], result.iterations[-1]
    assert last.end - first.start >= 0.1
    assert last.start - first.start < 0.1


def test_start_delay_and_straggler(port: int) -> None:
    result = run(port, start_delay_s=0.05, straggler_every=2, straggler_factor=3.0)
    assert [i.compute_s for i in result.iterations] == pytest.approx([0.005, 0.015, 0.005])


@pytest.mark.parametrize("direction", ["send", "receive"])
def test_congestion_control_is_read_back(port: int, direction: str) -> None:
    # Reno is in every kernel, and nobody needs a privilege for it.
    assert "reno" in available_congestion_controls()
    assert run(port, cc="reno", direction=direction).parameters["cc"] == "reno"


def test_unknown_congestion_control(port: int) -> None:
    with pytest.raises(HostError, match=r"no congestion control 'nosuch'; choose one of .*reno"):
        run(port, cc="nosuch")


def test_server_names_what_it_lacks(port: int) -> None:
    hello = Hello(os.urandom(16), 0, 1, "receive", "nosuch")
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(hello.pack())
        answer = Welcome.unpack(sock.recv(Welcome.LAYOUT.size, socket.MSG_WAITALL))
    assert not answer.accepted
    assert "no congestion control 'nosuch'" in answer.text


def test_clients_at_once(port: int) -> None:
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda: results.append(run(port, flows=2))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(result.iterations) for result in results] == [3] * 4


# Hostile clients


def _name(sock: socket.socket) -> str:
    """How the server's log names this client."""
    return f"127.0.0.1 port {sock.getsockname()[1]}"


def _hello(direction: str = "send") -> bytes:
    return Hello(os.urandom(16), 0, 1, direction, "").pack()


@pytest.mark.parametrize(
    ("garbage", "logged"),
    [
        (b"GET / HTTP/1.1\r\nHost: example\r\n\r\n" + b"x" * 100, "doesn't speak this protocol"),
        (bytes(1000), "doesn't speak this protocol"),
        (_hello() + bytes(1000), "doesn't speak this protocol"),
        (_hello() + BurstHeader(1, (1 << 64) - 1, 0).pack(), "impossible burst"),
        (_hello() + BurstHeader(1, 0, 1000).pack(), "wrong direction"),
        (_hello("receive") + BurstHeader(1, 1000, 1000).pack(), "wrong direction"),
        (_hello() + BurstHeader(1, 1000, 0).pack() + b"x", "middle of an exchange"),
        (_hello()[:20], "middle of an exchange"),
    ],
    # The bytes name a random session, and test processes that run in parallel must agree on names.
    ids=["http", "zeros", "zeros-later", "too-many", "down", "up", "extra", "cut-short"],
)
def test_garbage_is_logged_and_survived(
    server: Emulator, port: int, garbage: bytes, logged: str
) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        with suppress(OSError):  # the server may have closed by now
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
        server.wait_for(f"{_name(sock)} .*{logged}.*\n")
    assert len(run(port).iterations) == 3


def test_silent_clients_are_dropped(server: Emulator, port: int) -> None:
    with (
        socket.create_connection(("127.0.0.1", port)) as silent,
        socket.create_connection(("127.0.0.1", port)) as stalled,
    ):
        stalled.sendall(_hello() + BurstHeader(1, 1000, 0).pack())
        server.wait_for(f"{_name(silent)} dropped: nothing moved for 1 s\n")
        server.wait_for(f"{_name(stalled)} lost \\(nothing moved for 1 s\\)")


def test_client_that_does_not_read_is_dropped(server: Emulator, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(_hello("receive") + BurstHeader(1, 0, 1 << 40).pack())
        server.wait_for(f"{_name(sock)} lost \\(")
    assert len(run(port).iterations) == 3


def test_flow_number_taken(server: Emulator, port: int) -> None:
    hello = _hello()
    with socket.create_connection(("127.0.0.1", port)) as first:
        first.sendall(hello)
        first.recv(Welcome.LAYOUT.size, socket.MSG_WAITALL)
        with socket.create_connection(("127.0.0.1", port)) as second:
            second.sendall(hello)
            server.wait_for(f"{_name(second)} dropped: it asked for a flow that is taken")


# Servers that disappear or are something else


def test_nobody_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(MltcpError, match=r"can't be reached \(connection refused\); start it"):
        run(port)


def test_unknown_host() -> None:
    with pytest.raises(UsageError, match="can't be resolved"):
        run(5301, host="nosuch.invalid")


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "isn't usable .*another program"),
        (b"", "disappeared while connecting .*closed the connection"),
        (Welcome(True, "cubic").pack(), "disappeared in iteration 1"),
        (Welcome(True, "cubic").pack() + b"unasked", "isn't usable"),
        (Welcome(False, "Not today.").pack(), "refused: Not today"),
    ],
)
def test_odd_servers(answer: bytes, complaint: str) -> None:
    def serve(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(Hello.LAYOUT.size, socket.MSG_WAITALL)
            sock.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        with pytest.raises(MltcpError, match=complaint) as caught:
            run(listener.getsockname()[1], compute_s=0.2)
        assert len(str(caught.value).splitlines()) == 1
        thread.join()


def test_server_that_never_answers() -> None:
    sentence = r"while connecting \(nothing moved for 0.2 s\)"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(MltcpError, match=sentence),
    ):
        run(listener.getsockname()[1], timeout_s=0.2)


def test_server_that_stops_reading() -> None:
    def serve(listener: socket.socket, release: threading.Event) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(Hello.LAYOUT.size, socket.MSG_WAITALL)
            sock.sendall(Welcome(True, "cubic").pack())
            release.wait()

    release = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener, release])
        thread.start()
        try:
            with pytest.raises(MltcpError, match=r"in iteration 1 .*nothing moved for 1 s"):
                run(listener.getsockname()[1], timeout_s=1.0, bytes_per_iteration=100_000_000)
        finally:
            release.set()
            thread.join()


def test_what_was_measured_is_written_when_the_server_dies(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with Emulator("server", "--port", "0", "--bind", "127.0.0.1") as server:
        arguments = [f"--port={server.port()}", "--bytes=10kB", "--compute=10ms", "--duration=60s"]
        with Emulator("client", "127.0.0.1", *arguments, "--output", str(path)) as client:
            assert client.process.stdout is not None
            while b"-1." not in (line := client.process.stdout.readline()):
                assert line
            server.process.kill()
            code, out, err = client.end()
    assert code == 1
    assert err.startswith("mltcp: error: The server at 127.0.0.1 port")
    assert len(err.splitlines()) == 1
    document = read_document(path)
    assert document["error"] == err.removeprefix("mltcp: error: ").strip()
    assert document["summary"]["iterations"] == len(document["iterations"]) >= 1
    assert " iterations in " in out


def test_interrupted_client_writes_what_it_measured(port: int, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    arguments = [f"--port={port}", "--bytes=10kB", "--compute=10ms", "--duration=60s"]
    with Emulator("client", "127.0.0.1", *arguments, "--output", str(path)) as client:
        assert client.process.stdout is not None
        while b"-1." not in (line := client.process.stdout.readline()):
            assert line
        client.process.send_signal(signal.SIGINT)
        code, out, err = client.end()
    assert code == 130
    assert "Traceback" not in err
    assert " iterations in " in out
    document = read_document(path)
    assert document["error"] == "Interrupted."
    assert len(document["iterations"]) >= 1


# Server start and end


def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BusyError, match=f"Port {port} is in use"):
            Server(port, "127.0.0.1")


@pytest.mark.parametrize("bind", ["192.0.2.1", "nosuch.invalid"])
def test_foreign_address(bind: str) -> None:
    with pytest.raises(UsageError, match="address"):
        Server(0, bind)


def test_one_off_server_ends_by_itself() -> None:
    log: list[str] = []
    server = Server(0, "127.0.0.1", one_off=True, log=log.append)
    thread = threading.Thread(target=server.serve)
    thread.start()
    # Something else than a client doesn't count.
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.sendall(bytes(100))
    run(server.port, flows=3)
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert "finished: 900 kB" in log[-1]


def test_interrupted_server() -> None:
    with Emulator("server", "--port", "0", "--bind", "127.0.0.1") as server:
        server.port()
        server.process.send_signal(signal.SIGINT)
        code, _, err = server.end()
    assert code == 130
    assert "Traceback" not in err


# Command line


def test_command_line_reaches_the_job(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (
        f"emulate client 127.0.0.1 --port {port} --bytes 20kB --compute 1ms --iterations 4"
        " --jitter 5% --seed 7 --flows 2 --bursts 2 --start-delay 2ms --cc reno --direction both"
        " --straggler-every 2 --straggler-factor 3 --job a --trace 5ms --timeout 4s --json"
        " --split 3,1 --active 2 --chunk 1kB --turn 20ms --shift 3ms --realign 10%"
    )
    assert main(arguments.split()) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["job"] == "a"
    assert document["error"] is None
    assert len(document["iterations"]) == 4
    assert {sample["flow"] for sample in document["samples"]} == {0, 1}
    assert document["parameters"] == {
        "bytes_per_iteration": 20_000,
        "pattern": None,
        "compute_s": 0.001,
        "turns": {"turn_s": 0.02, "shift_s": 0.003, "realign": 0.1},
        "iterations": 4,
        "duration_s": None,
        "jitter": 0.05,
        "seed": 7,
        "flows": 2,
        "bursts": 2,
        "start_delay_s": 0.002,
        "cc": "reno",
        "direction": "both",
        "straggler_every": 2,
        "straggler_factor": 3.0,
        "weights": [3, 1],
        "active": 2,
        "chunk": 1000,
        "rate_bps": None,
        "host": "127.0.0.1",
        "port": port,
        "timeout_s": 4.0,
        "trace_s": 0.005,
    }


def test_text_output(port: int, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"emulate client 127.0.0.1 --port {port} --bytes 20kB --compute 1ms --iterations 4"
    assert main(arguments.split()) == 0
    out = capsys.readouterr().out
    assert out.startswith("Interval ")
    assert "4 iterations in " in out


@pytest.mark.parametrize(
    "options",
    [
        "--compute 1ms",
        "--bytes 1kB",
        "--bytes lots --compute 1ms",
        "--bytes 1kB --compute 1ms --flows 100",
        "--bytes 1kB --compute 1ms --timeout 0s",
        "--bytes 1kB --compute 1ms --output /nosuch/result.json",
        "--bytes 1kB --compute 1ms --control-fd 999",
        "--model nosuch",
    ],
)
def test_usage_errors(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", "client", "127.0.0.1", *options.split()]) == 2
    assert "Traceback" not in capsys.readouterr().err
