# SPDX-License-Identifier: BSD-2-Clause
"""The agent's configuration file: what it means, and what is said of wrong ones."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.live.agent.rules import ALL, Config, Rule, load_config, parse_config
from mltcp_tools.live.attach.selection import Target

FULL = """\
follow: polling
on_stop: keep
rules:
  - job: gpt2
    cgroup: [job_1234, /slurm]
    command: train[.]py
    pid: [1, 2]
    tree: 7
    port: 29500
    netns: blue
    burst_bytes: 2.5MB
    gap: 170ms
    cc: mltcp_reno
    kinds: [nccl-data, gloo]
    opt_in: true
    slope: 2
    intercept: 0.5
  - command: [torchrun]
    kinds: all
    burst_bytes: auto
    gap: auto
"""


def test_every_field_arrives() -> None:
    full = Rule(
        job="gpt2",
        target=Target(
            pids=(1, 2),
            trees=(7,),
            patterns=("train[.]py",),
            cgroups=("job_1234", "/slurm"),
            ports=(29500,),
            netns=("blue",),
        ),
        kinds=("nccl-data", "gloo"),
        congestion_control="mltcp_reno",
        burst_bytes=2_500_000,
        gap_s=0.17,
        opt_in=True,
        given={"slope": 2.0, "intercept": 0.5},
    )
    short = Rule(job=None, target=Target(patterns=("torchrun",)), kinds=(ALL,))
    config = parse_config(FULL, "a.yaml")
    assert config == Config((full, short), "polling", "keep", doubts=config.doubts)
    assert full.parameters() == {
        "burst_bytes": 2_500_000,
        "gap_s": 0.17,
        "slope": 2.0,
        "intercept": 0.5,
        "mechanisms": None,
    }
    assert short.parameters() == {"mechanisms": None}


def test_users_and_two_rules_of_one_job() -> None:
    text = """rules:
      - {job: a, user: root, burst_bytes: 1MB}
      - {job: a, user: [5, root], burst_bytes: 1000kB}"""
    first, second = parse_config(text, "a.yaml").rules
    assert (first.target.users, second.target.users) == ((0,), (5, 0))
    assert first.parameters() == second.parameters()


def test_a_rule_that_only_looks() -> None:
    (rule,) = parse_config("rules: [{job: a, pid: 1, cc: observe}]", "a.yaml").rules
    assert (rule.congestion_control, rule.parameters()) == ("observe", {"mechanisms": ()})
    (rule,) = parse_config("rules: [{job: a, pid: 1}]", "a.yaml").rules
    assert (rule.congestion_control, rule.parameters()) == ("mltcp", {"mechanisms": None})
    for wrong in ("observe: true", "cc: observe, slope: 2"):
        with pytest.raises(UsageError, match="observe"):
            parse_config(f"rules: [{{job: a, pid: 1, {wrong}}}]", "a.yaml")


def test_rules_that_do_nothing_or_little_are_told() -> None:
    assert parse_config("rules: []", "a.yaml") == Config(())
    config = parse_config("rules: [{pid: 1}, {job: a, user: no-such-user}, {job: b, pid: 2}]", "a")
    assert [rule.target.pids for rule in config.rules] == [(1,), (2,)]
    nameless, unknown = config.doubts
    assert "rules[1] gives no job" in nameless
    assert "rules[2] is left out: There is no user 'no-such-user'" in unknown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"a\.yaml:1: the file is empty; it needs rules"),
        ("rules: 7", r"a\.yaml:1: rules: must be a list"),
        ("on_stop: keep", r"rules: missing"),
        ("rules: [{job: x}]", r"rules\[1\]: the rule names no processes"),
        ("rules: [{command: '('}]", r"rules\[1\]: The pattern '\(' is not a regular"),
        ("rules: [{command: []}]", r"command: is an empty list"),
        ("rules: [{pid: x}]", r"pid: 'x' is not a whole number"),
        ("rules: [{port: 0}]", r"0 is not a TCP port; they are 1 to 65535"),
        ("rules: [{command: x, burst_bytes: 5 apples}]", r"burst_bytes: '5 apples' is not a size"),
        ("rules: [{command: x, gap: 5000s}]", r"gap_s is 5000"),
        ("rules: [{command: x, cc: bbr}]", r"cc: 'bbr' is not one of mltcp"),
        ("rules: [{command: x, kinds: [nccl]}]", r"kinds: 'nccl' is not one of all, nccl-data"),
        ("rules: [{command: x, opt_in: maybe}]", r"'maybe' is neither true nor false"),
        ("rules: [{command: x, slope: 1000}]", r"slope is 1000"),
        ("rules: [{command: x, job: ''}]", r"job: '' is not a name"),
        (f"rules: [{{command: x, job: {'n' * 64}}}]", r"must be 1 to 63 printable bytes"),
        ("rules: [{command: x}]\non_stop: never", r"a\.yaml:2: on_stop: 'never' is not one of det"),
        (
            "rules: [{pid: 1, job: a}, {pid: 2, job: b, gap: 1s}, {pid: 3, job: a, gap: 1s}]",
            r"rules\[3\]\.job: a rule above gives this job another burst_bytes",
        ),
        ("rules: [{command: x", r"a\.yaml:\d+: not valid YAML"),
        ("rules: " + "[" * 100_000, r"a\.yaml"),
    ],
)
def test_a_wrong_file_is_named_with_line_and_field(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_config(text, "a.yaml")


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"rules: [{{command: x, job: {text}}}]"):
        with contextlib.suppress(UsageError):
            parse_config(whole, "a.yaml")


def written(path: Path, text: str = FULL, mode: int = 0o644) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    for mode in (0o664, 0o646):
        with pytest.raises(HostError, match="chmod go-w"):
            load_config(written(tmp_path / "agent.yaml", mode=mode))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "agent.yaml")
    os.chown(path, 65534, 65534)
    with pytest.raises(HostError, match="chown root"):
        load_config(path)


def test_what_is_no_file_of_rules_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_config(tmp_path / "absent")
    with pytest.raises(UsageError, match="Is a directory"):
        load_config(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a plain file"):
        load_config(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "bytes").chmod(0o644)
    with pytest.raises(UsageError, match="UTF-8"):
        load_config(tmp_path / "bytes")
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        load_config(written(tmp_path / "large", "#" * (1 << 20) + "\n"))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{}", "names no interface"),
        ("{interfaces: [eth0], weight: size}", "'size' is not one of"),
        ("{interfaces: [eth0], controller: none}", "'none' is not one of"),
    ],
)
def test_wrong_priorities_are_named(section: str, said: str) -> None:
    text = f"rules: [{{job: one, pid: 1}}]\npriorities: {section}"
    with pytest.raises(UsageError, match=said):
        parse_config(text, "f.yaml")
