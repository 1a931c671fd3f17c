# SPDX-License-Identifier: BSD-2-Clause
"""vagrant/: the machines that its settings make. Bringing them up is `vagrant/try`'s."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

VAGRANT = Path(__file__).parents[3] / "vagrant"

needs_vagrant = pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is missing")


def validate(
    folder: Path, config: str | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """`vagrant validate` of a copy of the Vagrantfile, with a config.yaml and an environment."""
    shutil.copytree(VAGRANT, folder / "vagrant", ignore=shutil.ignore_patterns(".vagrant"))
    file = folder / "vagrant/config.yaml"
    file.unlink(missing_ok=True)
    if config is not None:
        file.write_text(config)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLTCP_")}
    environment |= {
        "VAGRANT_HOME": str(folder / "home"),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        ["vagrant", "validate", "--ignore-provider"],
        cwd=folder / "vagrant",
        env=environment | settings,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_vagrant
@pytest.mark.parametrize(
    ("config", "settings", "senders"),
    [
        (None, {}, 2),
        ("job_pairs: 3\nbox: generic/ubuntu2204\n", {}, 3),
        ("job_pairs: 3\n", {"MLTCP_JOB_PAIRS": "1"}, 1),
    ],
)
def test_vagrantfile_is_valid_with_a_machine_per_job_pair(
    tmp_path: Path, config: str | None, settings: dict[str, str], senders: int
) -> None:
    done = validate(tmp_path, config, **settings)
    assert done.returncode == 0, done.stderr
    assert "Vagrantfile validated successfully" in done.stdout
    machines = set(re.findall(r"^==> (\w+):", done.stdout, re.MULTILINE))
    assert machines == {"router", "receiver", *(f"sender{n + 1}" for n in range(senders))}


@needs_vagrant
@pytest.mark.parametrize(
    ("config", "settings", "sentence"),
    [
        ("pairs: 3\n", {}, "no such setting: pairs"),
        ("- 3\n", {}, "must be a list of settings"),
        (None, {"MLTCP_MEMORY": "much"}, "memory must be a whole number from 1"),
        ("job_pairs: 101\n", {}, "job_pairs must be at most 100"),
    ],
)
def test_a_setting_that_makes_no_sense_is_said(
    tmp_path: Path, config: str | None, settings: dict[str, str], sentence: str
) -> None:
    done = validate(tmp_path, config, **settings)
    assert done.returncode != 0
    assert sentence in done.stderr


@needs_vagrant
def test_a_run_without_machines_says_to_bring_them_up(tmp_path: Path) -> None:
    folder = tmp_path / "vagrant"
    shutil.copytree(VAGRANT, folder, ignore=shutil.ignore_patterns(".vagrant", "config.yaml"))
    environment = os.environ | {"VAGRANT_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [folder / "run", "two-jobs"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "vagrant/run: the machines are not up; run: vagrant up\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["install"], ["install", "switch"], ["network", ""], ["remove", "sender"]]
)
def test_provisioning_refuses_a_role_it_does_not_know(arguments: list[str]) -> None:
    command = ["bash", VAGRANT / "provision.sh", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "ROLE is sender, router or receiver" in done.stderr
