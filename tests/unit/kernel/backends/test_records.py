# SPDX-License-Identifier: BSD-2-Clause
"""Reports of the kernel side, as bytes, read back."""

from __future__ import annotations

from mltcp_tools.kernel.backends import records
from mltcp_tools.kernel.native.uapi import pack


def ends(number: int) -> dict[str, object]:
    return {
        "local_addr": bytes(10) + b"\xff\xff\x0a\x00\x00\x01",
        "remote_addr": bytes(10) + b"\xff\xff\x0a\x00\x00\x02",
        "local_port": 40000 + number,
        "remote_port": 80,
    }


def test_an_event_and_a_flows_record_name_a_connection_alike() -> None:
    flows = [pack("mltcp_flow_record", {"cookie": 7 + each, **ends(each)}) for each in range(3)]
    known = records.cookies(flows)
    events = [pack("mltcp_event", ends(each)) for each in range(4)]
    assert [known.get(records.ends_of_event(each)) for each in events] == [7, 8, 9, None]
