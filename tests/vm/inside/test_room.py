# SPDX-License-Identifier: BSD-2-Clause
"""A base that writes where the module keeps its pointer: see kmod/mltcp_state.c.

It is tests/vm/programs/modules/mltcp_fake_base.c, which has the name dctcp while it is loaded.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from vm.hostile import Client, exchange, gone, refused
from vm.loading import FILE, MODULE, connected, insert, registered, remove

from mltcp_tools.kernel.congestion_controls import offered_by

MODULE_NAMES = offered_by("kmod")

NAME = "mltcp_fake_base"
FAKE = FILE.with_name(f"{NAME}.ko")
PARAMETERS = Path("/sys/module", NAME, "parameters")

IN_INIT, LATER, LATER_ZEROS, IN_RELEASE = range(4)
"""The times at which it may write there."""


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    assert not MODULE.exists()
    yield
    for name in ("tcp_mltcp", NAME):
        if Path("/sys/module", name).exists():
            remove(name=name)


def said(text: str) -> int:
    """Return how many lines of the kernel's log have this."""
    log = subprocess.run(["dmesg"], check=True, capture_output=True, text=True).stdout
    return sum(text in line for line in log.splitlines())


@pytest.mark.parametrize("when", [IN_INIT, LATER, LATER_ZEROS, IN_RELEASE])
def test_a_base_that_leaves_no_room(when: int) -> None:
    """Its flows are its own from then on, and nothing of them stays in the module's table."""
    count = 5
    warned = said("mltcp_dctcp is plain dctcp from now")
    insert(FAKE, f"writes={when}")
    insert()
    assert "mltcp_dctcp" in registered()
    with Client() as client:
        client.set_job(1)
        for _ in range(2):
            with ExitStack() as stack:
                pairs = [connected("mltcp_dctcp") for _ in range(count)]
                for ends in pairs:
                    for end in ends:
                        stack.enter_context(end)
                for sender, peer in pairs:
                    exchange(sender, peer, 60)
                tagged = when == IN_RELEASE
                for sender, peer in pairs:
                    if tagged:
                        client.tag(sender.fileno(), 1)
                    else:
                        with refused(errno.ENOTCONN):
                            client.tag(sender.fileno(), 1)
                    exchange(sender, peer, 20)
                assert len(client.flows()) == (count if tagged else 0)
            assert gone(client)
        # Others aren't concerned.
        sender, peer = connected("mltcp")
        with sender, peer:
            client.tag(sender.fileno(), 1)
            exchange(sender, peer)
    assert said("mltcp_dctcp is plain dctcp from now") == warned + (when != IN_RELEASE)
    remove()
    begun, ended = (int((PARAMETERS / name).read_text()) for name in ("begun", "ended"))
    assert begun == ended == 2 * count
