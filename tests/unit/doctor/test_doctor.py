# SPDX-License-Identifier: BSD-2-Clause
"""The doctor on made-up hosts, and on this one."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import pytest

from mltcp_tools.cli.main import main
from mltcp_tools.doctor import HostFacts, diagnose, kmod
from mltcp_tools.doctor.host import CheckResult
from mltcp_tools.doctor.report import PURPOSES, Check, Diagnosis
from mltcp_tools.kernel.backends import module

ALL_CAPABILITIES = "000001ffffffffff"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

BTF = "/sys/kernel/btf/vmlinux"
EFI = "/sys/firmware/efi/systab"
HEADERS = "/lib/modules/6.1.0-49-amd64/build/Makefile"
LOCKDOWN = "/sys/kernel/security/lockdown"
RELEASE = "/proc/sys/kernel/osrelease"
SOFTNET = "/proc/net/softnet_stat"
STATUS = "/proc/self/status"
CONFINED = "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t0000000000001000\n"
INTEGRITY = "none [integrity] confidentiality"
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
MODULES = "/lib/modules/6.1.0-49-amd64/modules.dep"

# A Debian-like host on which everything works; a test takes away or changes one thing.
GOOD = {
    RELEASE: "6.1.0-49-amd64\n",
    STATUS: f"Name:\tx\nCapEff:\t{ALL_CAPABILITIES}\n",
    "/proc/self/uid_map": "         0          0 4294967295\n",
    "/proc/self/mounts": "proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw,mode=700 0 0\n",
    "/proc/modules": "",
    "/proc/sys/kernel/modules_disabled": "0\n",
    "/proc/sys/kernel/yama/ptrace_scope": "1\n",
    "/proc/sys/net/core/bpf_jit_enable": "1\n",
    "/proc/sys/net/ipv4/tcp_allowed_congestion_control": "reno cubic\n",
    "/proc/sys/net/ipv4/tcp_available_congestion_control": "reno cubic\n",
    "/proc/sys/net/ipv4/tcp_congestion_control": "cubic\n",
    "/proc/sys/net/ipv4/tcp_no_metrics_save": "0\n",
    BTF: "\0".join(
        (
            *("", "__bpf_prog_enter", "__bpf_prog_enter_recur", "bpf_sk_setsockopt"),
            *("bpf_struct_ops_tcp_congestion_ops", "bpf_iter_tcp_get_func_proto", ""),
        )
    ),
    "/sys/kernel/security/lockdown": "[none] integrity confidentiality\n",
    "/lib/modules/6.1.0-49-amd64/build/Makefile": "",
    "/lib/modules/6.1.0-49-amd64/modules.dep": "kernel/net/ipv4/tcp_bbr.ko:\n"
    "kernel/net/ipv4/tcp_dctcp.ko.xz:\nkernel/net/sched/sch_netem.ko:\n"
    "updates/dkms/tcp_mltcp.ko:\n",
    "/usr/include/bpf/bpf_helpers.h": "",
}


OF_THIS_HOST = {"clang", "libbpf"}
"""Checks of a made-up host that look at this one's tools, or find none."""
FORCED = gzip.compress(b"CONFIG_MODULE_SIG_FORCE=y\n")
OF_A_VENDOR = "\0__bpf_prog_enter_recur\0init_owned\0"
BTF_5_10 = "\0__bpf_prog_enter\0bpf_struct_ops_tcp_congestion_ops\0"


@pytest.fixture
def host(tmp_path):
    """Make a host out of GOOD and changes: a text replaces a file, None takes it away."""

    def make(changes=None):
        for name, text in {**GOOD, **(changes or {})}.items():
            if text is None:
                continue
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return HostFacts(tmp_path)

    return make


def find(diagnosis, purpose, name):
    (check,) = [check for check in diagnosis.checks[purpose] if check.name == name]
    return check


def test_nothing_is_wrong_on_a_good_host(host):
    fixed = {"/proc/sys/kernel/version": "#1 SMP Debian 6.1.183-1 (2026-11-01)"}
    found = diagnose(host({SOFTNET: "a1 0 3\n", **fixed}))
    wrong = [
        each
        for checks in found.checks.values()
        for each in checks
        if each.state not in ("ok", "unknown") and each.name not in OF_THIS_HOST
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("purpose", "name", "changes", "state", "fix"),
    [
        ("bpf", "kernel", {BTF: BTF_5_10}, "missing", "6.1 or newer"),
        ("attach", "in the kernel", {BTF: BTF_5_10}, "warning", "6.1"),
        ("bpf", "BTF", {BTF: None}, "missing", "CONFIG_DEBUG_INFO_BTF"),
        ("bpf", "struct_ops", {BTF: "\0__bpf_prog_enter_sleepable\0"}, "missing", "6.1 or newer"),
        ("bpf", "struct_ops", {BTF: OF_A_VENDOR}, "warning", "vendor"),
        ("bpf", "CVE-2026-74714", {RELEASE: "6.18.44"}, "warning", "6.18.45"),
        ("attach", "receive backlog", {SOFTNET: "a1 0 3\nb2 10 0\n"}, "warning", "max_backlog"),
        ("bpf", "JIT", {"/proc/sys/net/core/bpf_jit_enable": "0"}, "missing", "bpf_jit_enable=1"),
        ("bpf", "bpffs", {"/proc/self/mounts": "bpf /other bpf rw 0 0"}, "missing", "mount -t bpf"),
        ("bpf", "capabilities", {STATUS: "CapEff:\t0000000000000000"}, "missing", "root"),
        # CAP_SYS_ADMIN and CAP_NET_ADMIN: what root of a kernel before 5.8 would be granted.
        ("bpf", "capabilities", {STATUS: "CapEff:\t0000000000201000"}, "ok", ""),
        ("bpf", "capabilities", {"/proc/self/uid_map": "0 1000 1"}, "missing", "on the host"),
        ("bpf", "libbpf headers", {"/usr/include/bpf/bpf_helpers.h": None}, "missing", "-dev"),
        ("bpf", "base dctcp", {MODULES: None}, "warning", "CONFIG_TCP_CONG_DCTCP"),
        ("bpf", "base cubic", {AVAILABLE: "reno"}, "warning", "CONFIG_TCP_CONG_CUBIC"),
        ("kmod", "tcp_mltcp", {MODULES: None}, "missing", "make -C kmod module"),
        ("kmod", "tcp_mltcp", {MODULES: None, "/sys/module/tcp_mltcp/refcnt": "0"}, "ok", ""),
        # Only building needs them, and the module is there.
        ("kmod", "kernel headers", {HEADERS: None, MODULES: None}, "missing", "linux-headers-6.1"),
        ("kmod", "signing", {SECURE_BOOT: b"\x06\x00\x00\x00\x00"}, "ok", ""),
        ("kmod", "signing", {SECURE_BOOT: b"\x06\x00\x00\x00\x01"}, "warning", "mokutil"),
        ("kmod", "signing", {LOCKDOWN: INTEGRITY}, "warning", "BPF backend"),
        ("kmod", "signing", {"/proc/config.gz": FORCED, EFI: ""}, "warning", "mokutil"),
        ("attach", "ptrace", {"/proc/sys/kernel/yama/ptrace_scope": "3"}, "warning", "reboot"),
    ],
)
def test_finding(host, purpose, name, changes, state, fix):
    check = find(diagnose(host(changes)), purpose, name)
    assert check.state == state
    assert fix in check.fix
    if state in ("missing", "warning"):
        assert check.fix


def test_a_kernel_that_load_refuses_is_not_ready(host, monkeypatch):
    monkeypatch.delenv("MLTCP_ALLOW_SKIPPED_CALLS")
    assert "struct_ops" in diagnose(host({BTF: OF_A_VENDOR})).lacking("bpf")


@pytest.mark.parametrize(
    ("changes", "loading", "advice"),
    [
        ({"/proc/modules": None}, "CONFIG_MODULES", "mltcp load --backend bpf"),
        ({"/proc/sys/kernel/modules_disabled": "1"}, "BPF backend", "mltcp load --backend bpf"),
        ({STATUS: CONFINED}, "on the host itself", "mltcp load --backend bpf"),
        ({"/proc/self/uid_map": "0 1000 1"}, "on the host itself", "mltcp load --backend bpf"),
    ],
)
def test_no_advice_to_build_a_module_the_kernel_refuses(host, changes, loading, advice):
    diagnosis = diagnose(host({MODULES: None, HEADERS: None, **changes}))
    assert loading in find(diagnosis, "kmod", "module loading").fix
    assert find(diagnosis, "kmod", "tcp_mltcp").state == "missing"
    assert advice in find(diagnosis, "kmod", "tcp_mltcp").fix
    fixes = [check.fix for check in diagnosis.checks["kmod"]]
    assert not [fix for fix in fixes if "make -C" in fix or "apt-get install" in fix]


def test_a_loaded_module_needs_no_loading(host):
    changes = {"/proc/sys/kernel/modules_disabled": "1", "/sys/module/tcp_mltcp/refcnt": "0"}
    assert find(diagnose(host(changes)), "kmod", "module loading").state == "ok"


def test_other_network_namespace_is_told_by_the_read_only_list(host):
    made = host()
    allowed = made.path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    allowed.chmod(0o444)
    assert find(diagnose(made), "bpf", "host network").state == "warning"
    allowed.chmod(0o644)
    assert find(diagnose(made), "bpf", "host network").state == "ok"


class Answering(HostFacts):
    """A made-up host whose commands answer with given texts."""

    def __init__(self, root, answers):
        super().__init__(root)
        self.answers = answers

    def run(self, command, timeout_s=20):
        answer = self.answers.get(" ".join(command[:2]))
        return None if answer is None else CheckResult(0, answer)


@pytest.mark.parametrize(
    ("version", "targets", "state"),
    [
        ("Debian clang version 14.0.6\nTarget: x86_64", "  bpf   - BPF (host endian)", "ok"),
        ("clang version 12.0.1", "  bpf   - BPF (host endian)", "missing"),
        ("clang version 16.0.0", "  x86   - 32-bit X86\n  nobpf - x", "missing"),
        (None, None, "missing"),
    ],
)
def test_clang(tmp_path, monkeypatch, version, targets, state):
    monkeypatch.delenv("CLANG", raising=False)
    answers = {"clang --version": version, "clang -print-targets": targets}
    check = find(diagnose(Answering(tmp_path, answers)), "bpf", "clang")
    assert check.state == state
    assert bool(check.fix) == (state == "missing")


@pytest.mark.parametrize(
    ("vermagic", "state"), [("6.1.0-49-amd64 SMP", "ok"), ("6.1.0-50-amd64 SMP", "missing")]
)
def test_a_built_module_must_be_for_this_kernel(tmp_path, monkeypatch, vermagic, state):
    host = Answering(tmp_path, {"modinfo -F": vermagic})
    host.live = True
    host.kernel = "6.1.0-49-amd64"
    monkeypatch.setattr(module, "built", lambda: tmp_path / "tcp_mltcp.ko")
    (check,) = [check for check in kmod.checks(host) if check.name == "tcp_mltcp"]
    assert check.state == state
    assert "tcp_mltcp.ko" in check.found


def test_empty_tree_has_no_traceback(tmp_path):
    diagnosis = diagnose(HostFacts(tmp_path))
    assert not diagnosis.ready
    assert "kernel" in diagnosis.as_text(80)


ALL_OK = dict.fromkeys(("bpf", "testbed", "kmod", "attach"), "ok")


def test_readiness_depends_on_one_backend_alone():
    def diagnosis(**states):
        checks = {name: [Check("x", states.get(name, "ok"), "")] for name in states | ALL_OK}
        return Diagnosis("6.1", checks)

    assert diagnosis().ready
    assert diagnosis(bpf="warning", testbed="unknown", kmod="missing", attach="missing").ready
    assert diagnosis(bpf="missing").ready
    assert not diagnosis(bpf="missing", kmod="missing").ready
    assert diagnosis(testbed="missing").ready  # it is for experiments
    assert not Diagnosis("6.1", {"peer": [Check("path", "missing", "")]}).ready


def test_json_on_this_host(capsys):
    code = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mltcp-doctor/1"
    assert document["kernel"] == os.uname().release
    assert set(document["ready"]) == set(PURPOSES) - {"peer"}
    ready = document["ready"]
    assert code == (0 if ready["bpf"] or ready["kmod"] else 3)
    for check in document["checks"]:
        assert set(check) == {"purpose", "name", "state", "found", "fix"}
        assert check["purpose"] in PURPOSES
        assert check["state"] in ("ok", "missing", "warning", "unknown")
        assert check["state"] in ("ok", "unknown") or check["fix"]


def test_leaves_nothing_behind():
    def seen():
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
        return "mltcp0" in links, "mltcp1" in links

    before = seen()
    diagnose()
    assert seen() == before == (False, False)


def test_works_without_privileges():
    program = "from mltcp_tools.cli.main import main; raise SystemExit(main(['doctor', '--json']))"
    command = [sys.executable, "-c", program]
    if os.geteuid() == 0:
        # Another user might not be allowed to read this checkout.
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    checks = json.loads(done.stdout)["checks"]
    states = {(check["purpose"], check["name"]): check["state"] for check in checks}
    assert states["bpf", "capabilities"] == "missing"
    assert states["testbed", "network namespaces"] == "unknown"
