# SPDX-License-Identifier: BSD-2-Clause
"""Files that ship with the agent: its unit and its example of rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mltcp_tools
from mltcp_tools.cli.main import main
from mltcp_tools.live.agent.rules import load_config, parse_config


def printed(capsys: pytest.CaptureFixture[str], what: str) -> str:
    assert main(["agent", "--print", what]) == 0
    return capsys.readouterr().out


def test_the_example_is_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = printed(capsys, "rules")
    config = parse_config(text, "agent.yaml")
    assert [rule.job for rule in config.rules] == [r"slurm-{cgroup:job_(\d+)}", "recommender"]
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    path.chmod(0o644)
    assert load_config(path) == config
    assert config.doubts == ()
    assert main(["agent", "--check", "--config", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"]
    assert main(["agent", "--json", "--config", str(path)]) == 2
    assert "--json needs --check" in capsys.readouterr().err
    assert main(["agent", "--check", "--config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid, rules: 2.\n"


def test_checking_wrong_rules_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["agent", "--check", "--config", str(tmp_path / "absent")]) == 2
    assert "absent can't be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [sys.executable])  # any program that is there will do
    unit = tmp_path / "mltcp-agent.service"
    unit.write_text(printed(capsys, "unit"))
    assert f"ExecStart={Path(sys.executable).resolve()} agent\n" in unit.read_text()
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert "mltcp-agent" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_every_capability_of_the_unit_has_its_reason() -> None:
    folder = Path(mltcp_tools.__file__).parent
    unit = (folder / "live" / "agent" / "mltcp-agent.service").read_text()
    (bounded,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    document = (folder / "live" / "attach" / "README.md").read_text()
    rows = re.findall(r"^\| (CAP_[A-Z_, ]+) \|", document, re.MULTILINE)
    assert sorted(bounded.split()) == sorted(name for row in rows for name in row.split(", "))
    assert "CAP_SYS_MODULE" not in bounded  # what loads a module is not the agent
    assert "ExecStartPre=+" in unit
