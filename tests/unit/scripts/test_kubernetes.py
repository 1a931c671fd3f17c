"""The manifests for Kubernetes, held against its schemas and what the agent is and needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from mltcp_tools import __version__
from mltcp_tools.live.agent import rules

CHECKOUT = Path(__file__).parents[3]
MANIFESTS = CHECKOUT / "scripts/kubernetes/mltcp.yaml"
UNIT = Path(rules.__file__).with_name("mltcp-agent.service")


@pytest.fixture
def by_kind() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFESTS.read_text())}


@pytest.mark.parametrize("version", ["1.28", "1.31", "1.34"])
def test_kubernetes_takes_them(by_kind: dict[str, Any], version: str) -> None:
    for each in by_kind.values():
        kubernetes_validate.validate(each, version, strict=True)


def test_the_agent_may_what_its_unit_lets_it(by_kind: dict[str, Any]) -> None:
    (bounded,) = re.findall(r"^CapabilityBoundingSet=(.*)$", UNIT.read_text(), re.MULTILINE)
    pod = by_kind["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod["initContainers"], *pod["containers"]):
        limits = container["securityContext"]
        assert limits["capabilities"]["drop"] == ["ALL"]
        assert sorted(f"CAP_{name}" for name in limits["capabilities"]["add"]) == sorted(
            bounded.split()
        )
        assert limits["privileged"] is False
        assert limits["readOnlyRootFilesystem"] is True
        assert container["image"] == f"mltcp-agent:{__version__}"


def test_only_pods_that_ask_are_attached(by_kind: dict[str, Any]) -> None:
    config = rules.parse_config(by_kind["ConfigMap"]["data"]["agent.yaml"], "agent.yaml")
    (rule,) = config.rules
    assert rule.opt_in
    assert rule.job == "{pod}"
    assert config.doubts == ()
