# SPDX-License-Identifier: BSD-2-Clause
"""The kernel module's control: messages against the kernel and another encoder, and its errors."""

from __future__ import annotations

import contextlib
import errno
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink import ctrlmsg

from mltcp_tools.base.errors import BusyError, HostError, MltcpError, UnknownError, UsageError
from mltcp_tools.kernel.backends import attributes, genl, get_backend, kmod, module
from mltcp_tools.kernel.backends.base import Job, JobParams, Status
from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.genl import GenericSocket, NetlinkError
from mltcp_tools.kernel.native import uapi

GETFAMILY = 3
FAMILY_ID = 1
FAMILY_NAME = 2


def test_a_job_survives_the_way_to_the_kernel_and_back() -> None:
    job = Job(2**32 - 1, "jöb", JobParams(burst_bytes=5, gap_s=3, mechanisms=("yield",)))
    data = genl.encode(attributes.job_attributes(job))
    assert len(data) % 4 == 0
    assert attributes.job_from(genl.decode(data)) == job


def test_names_that_other_programs_gave_can_be_shown() -> None:
    given = genl.decode(genl.encode(attributes.job_attributes(Job(1, "a"))))
    for given_name, shown in ((b"", "?"), (b"a\nb\xff\0c", "a?b\N{REPLACEMENT CHARACTER}")):
        assert attributes.job_from({**given, uapi.Attribute.JOB_NAME: given_name}).name == shown


def test_what_another_version_sends_is_passed_over_or_zero() -> None:
    """A newer module may say more of a flow, and an older one less."""
    known = {
        uapi.FlowAttribute.CA_NAME: b"mltcp\0",
        uapi.FlowAttribute.LOCAL_ADDR: bytes(16),
        uapi.FlowAttribute.REMOTE_ADDR: bytes(16),
        uapi.FlowAttribute.STATE: b"\1",
        uapi.FlowAttribute.ACKS: struct.pack("=I", 7),
    }
    flow = attributes.flow_from(genl.encode({**known, 500: b"of the future"}))
    assert (flow.congestion_control, flow.state, flow.acks) == ("mltcp", "established", 7)
    assert (flow.losses, flow.full_queue_us) == (0, 0)


@pytest.mark.parametrize("version", [2, 4])
def test_another_version_of_the_protocol_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    class Module:
        def __init__(self, _family: str) -> None:
            self.version = version

        def close(self) -> None:
            pass

    monkeypatch.setattr(kmod, "GenericSocket", Module)
    monkeypatch.setattr(module, "generation", lambda: 1)
    with pytest.raises(HostError, match=rf"speaks version {version} of its protocol and this tool"):
        kmod.KmodBackend().set_job(Job(1, "a"))


@given(st.dictionaries(st.integers(1, 0x3FFF), st.binary(max_size=40)))
def test_attributes_survive(attributes: dict[int, bytes]) -> None:
    assert genl.decode(genl.encode(attributes)) == attributes


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoders_hang_or_read_on(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert sum(4 + len(value) for value in genl.decode(data).values()) <= len(data)
    with contextlib.suppress(ValueError):
        assert sum(16 + len(payload) for *_, payload in genl.messages(data)) <= len(data)


def test_the_kernel_answers_a_request() -> None:
    with GenericSocket("nlctrl") as control:
        assert control.id == 16
        answer = control.request(GETFAMILY, {FAMILY_NAME: b"nlctrl\0"})
        assert genl.number(answer[FAMILY_ID]) == 16
        assert genl.text(answer[FAMILY_NAME]) == "nlctrl"


def test_the_kernel_answers_a_dump_as_pyroute2_reads_it() -> None:
    with GenericSocket("nlctrl") as control:
        dumped = control.dump(GETFAMILY)
    names = [genl.text(genl.decode(data)[FAMILY_NAME]) for data in dumped]
    assert "nlctrl" in names
    for data in dumped:
        message = ctrlmsg(struct.pack("=IHHIIBBH", 20 + len(data), 16, 0, 0, 0, 1, 2, 0) + data)
        message.decode()
        name = message.get_attr("CTRL_ATTR_FAMILY_NAME")
        assert name == genl.text(genl.decode(data)[FAMILY_NAME])


def test_kernel_refusal_is_an_error_and_socket_works_on() -> None:
    with pytest.raises(NetlinkError) as absent:
        GenericSocket("no such family")
    assert absent.value.errno == errno.ENOENT
    with GenericSocket("nlctrl") as control:
        for _ in range(2):
            with pytest.raises(NetlinkError) as unknown:
                control.request(200, {})
            assert unknown.value.errno == errno.EOPNOTSUPP
        with pytest.raises(NetlinkError, match="not supported"):
            control.dump(200)
        assert control.dump(GETFAMILY)
        # Longer than any family's name: refused by policy, in the kernel's words.
        with pytest.raises(NetlinkError) as long:
            control.request(GETFAMILY, {FAMILY_NAME: b"x" * 100})
        assert long.value.errno in (errno.EINVAL, errno.ERANGE)
        assert "policy validation" in long.value.text


def test_a_group_is_joined_and_silence_is_nothing() -> None:
    with GenericSocket("nlctrl") as control:
        control.join("notify", 1 << 16)
        control.notifications(0)  # families of other tests' modules may come and go
        assert control.dropped() == 0
        with pytest.raises(KeyError):
            control.join("no such group", 1 << 16)


def error_bytes(code: int, said: str, echoed: bytes) -> bytes:
    header = struct.pack("=IHHII", 16 + len(echoed), 20, 5, 1, 0)
    return struct.pack("=i", -code) + header + echoed + genl.encode({1: said.encode() + b"\0"})


@pytest.mark.parametrize(
    ("kind", "flags", "payload", "text"),
    [
        (2, 0x300, error_bytes(errno.EINVAL, "why", b""), "why"),  # the request's header alone
        (2, 0x200, error_bytes(errno.EINVAL, "why", b"abcd" * 3), "why"),  # all of it
        (2, 0, struct.pack("=i", -errno.EINVAL), ""),
        (3, 0x202, struct.pack("=i", -errno.EINVAL) + genl.encode({1: b"why\0"}), "why"),
        (3, 2, struct.pack("=i", -errno.EINVAL), ""),
    ],
)
def test_the_words_of_the_kernel_are_found(
    kind: int, flags: int, payload: bytes, text: str
) -> None:
    error = genl.refusal(kind, flags, payload)
    assert error is not None
    assert (error.errno, error.text) == (errno.EINVAL, text)
    assert error.strerror == (text or "Invalid argument")


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (errno.EPERM, HostError, "lacks CAP_NET_ADMIN"),
        (errno.ENOSPC, BusyError, "table of jobs is full"),
        (errno.EBUSY, BusyError, "kept the socket locked for a second; retry."),
        (errno.ERANGE, MltcpError, "Doing it failed: because of this."),
    ],
)
def test_refusals_become_sentences(code: int, kind: type[MltcpError], says: str) -> None:
    error = kmod.explain(NetlinkError(code, "because of this"), "Doing it")
    assert type(error) is kind
    assert says in str(error)


INSMOD = "insmod: ERROR: could not insert module x.ko: "
MODPROBE = "modprobe: ERROR: could not insert 'tcp_mltcp': "


# What the tools of kmod 30 printed on Debian's 6.1 for each cause.
@pytest.mark.parametrize(
    ("said", "kind", "says"),
    [
        ("rmmod: ERROR: Module tcp_mltcp is in use", BusyError, "in use"),
        (INSMOD + "File exists", BusyError, "could not be loaded"),
        (
            INSMOD + "Key was rejected by service",
            HostError,
            "mokutil",
        ),
        (INSMOD + "Invalid module format", HostError, "fit"),
        (
            MODPROBE + "Numerical result out of range",
            HostError,
            "modprobe failed: modprobe: ERROR: could not insert 'tcp_mltcp': Numerical",
        ),
    ],
)
def test_failures_of_tools_become_sentences(said: str, kind: type[MltcpError], says: str) -> None:
    error = module.explain("modprobe", said)
    assert type(error) is kind
    assert says in str(error)


@pytest.mark.parametrize(("mode", "says"), [("none", "container"), ("integrity", "mokutil")])
def test_no_permission_means_lockdown_or_a_container(
    monkeypatch: pytest.MonkeyPatch, mode: str, says: str
) -> None:
    monkeypatch.setattr(module.facts, "lockdown", lambda: mode)
    said = MODPROBE + "Operation not permitted"
    assert says in str(module.explain("modprobe", said))


def test_defaults_become_parameters_of_the_module() -> None:
    assert kmod.module_arguments(None) == []
    told = kmod.module_arguments(JobParams(burst_bytes=7, gap_s=1e-9, slope=0.0004))
    assert told == [
        *("slope=0", "intercept=250"),
        *("yield_min=600", "yield_max=1000", "burst_bytes=7", "gap_ns=1"),
    ]
    assert "gap_ns=0" in kmod.module_arguments(JobParams())
    for unfit in (JobParams(mechanisms=("increase",)), JobParams(mechanisms=())):
        with pytest.raises(UsageError, match="no mechanisms"):
            kmod.module_arguments(unfit)


@pytest.mark.skipif(module.is_loaded(), reason="the kernel module is loaded")
def test_without_the_module_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = kmod.KmodBackend()
    status = backend.status()
    assert (status.loaded, status.sockets, status.jobs) == ((), {}, ())
    assert backend.unload() == 0
    assert backend.flows() == backend.jobs() == []
    with pytest.raises(UsageError, match="no bbr"):
        backend.load(["bbr"])
    monkeypatch.setattr(module.facts, "effective_capabilities", lambda: set())
    with pytest.raises(HostError, match=r"can't load modules|switched off|CAP_SYS_MODULE"):
        module.require_loading()


@pytest.mark.parametrize(
    ("bpf", "loaded", "installed", "chosen"),
    [
        (False, (), False, "bpf"),
        (False, (), True, "kmod"),
        (True, (), True, "bpf"),
        (False, ("mltcp",), False, "kmod"),
        (True, ("mltcp", "mltcp_dctcp"), True, "kmod"),
        (True, ("mltcp_dctcp",), True, "bpf"),
    ],
)
def test_auto_is_what_is_loaded_else_what_is_installed(
    monkeypatch: pytest.MonkeyPatch,
    bpf: bool,
    loaded: tuple[str, ...],
    installed: bool,
    chosen: str,
) -> None:
    monkeypatch.setattr(BpfBackend, "is_present", lambda _: bpf)
    monkeypatch.setattr(kmod.KmodBackend, "is_present", lambda _: bool(loaded))
    monkeypatch.setattr(kmod.KmodBackend, "status", lambda _: Status("kmod", loaded, {}, (), {}))
    monkeypatch.setattr(module, "installed", lambda: installed)
    assert get_backend("auto").name == chosen


@pytest.mark.parametrize(
    ("present", "loaded"), [("live", True), ("coming", False), ("nothing", False)]
)
def test_a_module_is_loaded_once_it_is_live(
    present: str, loaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / module.NAME
    monkeypatch.setattr(module, "_SYS", folder)
    if present != "nothing":
        folder.mkdir()
        (folder / "initstate").write_text(f"{present}\n")
    assert module.is_loaded() is loaded


@pytest.mark.parametrize("sysfs", ["absent", "unreadable"])
def test_without_sysfs_it_is_unknown_what_is_loaded(
    sysfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sys" / module.NAME
    if sysfs == "unreadable":
        (folder / "initstate").mkdir(parents=True)  # reading fails, though it is there
    monkeypatch.setattr(module, "_SYS", folder)
    with pytest.raises(UnknownError, match="sysfs"):
        module.is_loaded()
