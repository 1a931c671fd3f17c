# SPDX-License-Identifier: BSD-2-Clause
"""The emulator as a program, which a parent starts and drives over a descriptor (control.py)."""

from __future__ import annotations

import argparse
import shlex
import sys

from mltcp_tools.base.errors import run
from mltcp_tools.lab.emulator.client import ClientOptions
from mltcp_tools.lab.emulator.control import Control
from mltcp_tools.lab.emulator.entry import SILENCE_S, run_client, run_rank
from mltcp_tools.lab.emulator.server import EmulatorServer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mltcp_tools.lab.emulator")
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("server")
    server.add_argument("--bind")
    server.add_argument("--cc")
    client = roles.add_parser("client")
    client.add_argument("host")
    rank = roles.add_parser("rank")
    for each in (server, client):
        each.add_argument("--port", type=int, required=True)
    for each in (client, rank):
        each.add_argument("--job", help="For who looks at processes.")
    for each in (server, client, rank):
        each.add_argument("--control-fd", type=int, required=True)
    return parser.parse_args()


def _main() -> None:
    said = _arguments()
    control = Control(said.control_fd)
    if said.role == "server":
        server = EmulatorServer(
            said.port,
            said.bind,
            timeout_s=SILENCE_S,
            cc=said.cc,
            control=control,
            log=lambda line: print(line, file=sys.stderr, flush=True),
        )
        server.serve()
    elif said.role == "client":
        name, spec, trace_s = control.read_job()
        options = ClientOptions(said.host, said.port, name, SILENCE_S, trace_s)
        run_client(spec, options, as_json=True, control=control)
    else:
        run_rank(control)


if __name__ == "__main__":
    sys.exit(run(_main, shlex.join(sys.orig_argv)))
