# SPDX-License-Identifier: BSD-2-Clause
"""State files: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.backends.base import Job, JobParams
from mltcp_tools.live.attach.state import AttachedJob, KnownFiles, SocketRecord, StateFiles

RECORD = SocketRecord(
    pid=123,
    start_ticks=456,
    fd=7,
    netns=4026531840,
    inode=99,
    cookie=2**63 + 1,
    local=("10.0.0.1", 40000),
    remote=("fe80::1", 50000),
    old="cubic",
    new="mltcp",
)
STATE = AttachedJob(
    Job(3, "résumé of/../all", JobParams(burst_bytes=10, gap_s=0.5, mechanisms=("increase",))),
    "bpf",
    (RECORD,),
)


@pytest.fixture
def files(tmp_path):
    return StateFiles(tmp_path / "attach")


def spoiled(files, change):
    """The error that reading gives after `change` was made to the document of a good file."""
    files.write(STATE)
    path = files.directory / "job-3.json"
    document = json.loads(path.read_text())
    result = change(document)
    path.write_text(json.dumps(document if result is None else result))
    with pytest.raises(HostError, match="can't be trusted") as caught:
        files.read()
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_what_was_written_is_read(files):
    assert files.read() == []
    other = AttachedJob(Job(2, "b"), "kmod", ())
    files.write(STATE)
    files.write(other)
    assert files.read() == [other, STATE]
    files.write(AttachedJob(STATE.job, "bpf", ()))
    assert files.read()[1].sockets == ()
    files.remove(3)
    files.remove(3)
    assert files.read() == [other]


def test_what_is_known_is_what_is_on_disk(files):
    files.write(STATE)
    known = KnownFiles(files)
    other = replace(STATE, job=Job(2, "other"))
    known.write(other)
    assert known.read() == files.read()
    assert [each.job.id for each in known.read()] == [2, 3]
    known.remove(STATE.job.id)
    assert known.read() == files.read() == [other]


def test_writing_follows_no_planted_link(files, tmp_path):
    files.write(STATE)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (files.directory / ".job-3.json.new").symlink_to(precious)
    files.remove(3)
    (files.directory / "job-3.json").symlink_to(precious)
    files.write(STATE)
    assert precious.read_text() == "precious"
    assert files.read() == [STATE]


def test_a_folder_below_one_that_others_may_change_is_refused(files, tmp_path):
    files.write(STATE)
    tmp_path.chmod(0o777)
    for change in (files.read, lambda: files.write(STATE)):
        with pytest.raises(HostError, match="other users may change it"):
            change()
    tmp_path.chmod(0o1777)  # but like /tmp
    assert files.read() == [STATE]


def set_in(*path):
    """Sets a value deep in a document."""
    *above, last, value = path

    def change(document):
        for key in above:
            document = document[key]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (set_in("version", 2), "another version"),
        (set_in("backend", "dpdk"), "no backend 'dpdk'"),
        (set_in("job", "id", True), "id is True"),
        (set_in("job", "id", 4), "it is about job 4"),
        (set_in("job", "name", "\ud800"), "printable"),
        (set_in("job", "params", "slope", float("nan")), "slope is nan"),
        (set_in("job", "params", "mechanisms", [1]), "mechanisms is 1"),
        (set_in("sockets", {}), "sockets is {}"),
        (set_in("sockets", 0, "pid", 1.5), "pid is 1.5"),
        (set_in("sockets", 0, "local", ["10.0.0.1"]), "local is ['10.0.0.1']"),
        (lambda document: document.pop("job") and None, "exactly the fields"),
    ],
)
def test_every_field_is_checked(files, change, why):
    assert why in spoiled(files, change)


def test_parameters_of_an_earlier_build_are_left_out(files):
    files.write(STATE)
    path = files.directory / "job-3.json"
    document = json.loads(path.read_text())
    document["job"]["params"] |= {"keep_min": 0.5, "shape": "linear"}
    path.write_text(json.dumps(document))
    assert files.read() == [STATE]


@settings(max_examples=200)
@given(st.data())
def test_no_change_of_a_file_does_more_than_be_refused(tmp_path_factory, data):
    files = StateFiles(tmp_path_factory.mktemp("state") / "attach")
    files.write(STATE)
    path = files.directory / "job-3.json"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        (state,) = files.read() or [STATE]
    except HostError:
        return
    assert state.job.id == 3
