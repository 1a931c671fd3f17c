# SPDX-License-Identifier: BSD-2-Clause
"""The manifests for Kubernetes, held against its schemas and what the agent is and needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support import helm

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


needs_helm = pytest.mark.skipif(
    not helm.BINARY.exists(), reason="Helm isn't installed (scripts/setup --full)"
)


@pytest.mark.full
@needs_helm
def test_helm_makes_the_manifests_of_those_who_have_none() -> None:
    assert MANIFESTS.read_text() == helm.HEAD + helm.template(helm.FOR_ALL)
    found = json.loads(helm.lint({}))
    assert found["passed"], found
    assert {each["message"] for each in found["messages"]} <= {"icon is recommended"}


def daemonset(values: dict[str, Any]) -> dict[str, Any]:
    """The pod that the chart makes of these values, which Kubernetes takes."""
    made = [each for each in yaml.safe_load_all(helm.template(values)) if each]
    for each in made:
        kubernetes_validate.validate(each, "1.34", strict=True)
    assert [each["kind"] for each in made] == ["ConfigMap", "DaemonSet"]
    pod: dict[str, Any] = made[1]["spec"]["template"]
    return pod


@pytest.mark.full
@needs_helm
def test_the_charts_settings_do_what_they_say() -> None:
    plain = daemonset({})
    assert plain["spec"]["containers"][0]["command"] == ["mltcp", "agent"]
    told = daemonset(
        {
            "metrics": {"enabled": True, "port": 9999},
            "image": {"repository": "registry.test/mltcp", "tag": "2"},
            "imagePullSecrets": [{"name": "secret"}],
            "nodeSelector": {"gpu": "yes"},
            "tolerations": [],
            "priorityClassName": "",
            "rules": {"rules": []},
        }
    )
    (agent,) = told["spec"]["containers"]
    assert agent["command"] == ["mltcp", "agent", "--metrics", "$(NODE_IP):9999"]
    assert agent["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.hostIP"
    assert agent["image"] == "registry.test/mltcp:2"
    assert told["metadata"]["annotations"]["prometheus.io/port"] == "9999"
    assert told["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert told["spec"]["imagePullSecrets"] == [{"name": "secret"}]
    assert not {"tolerations", "priorityClassName"} & set(told["spec"])
    rules_of = [each["metadata"]["annotations"]["mltcp.dev/rules"] for each in (plain, told)]
    assert rules_of[0] != rules_of[1]  # other rules make other pods

    gone = daemonset({"state": "absent", "metrics": {"enabled": True}})
    assert gone["spec"]["initContainers"][0]["command"] == ["mltcp", "unload", "--everything"]
    assert gone["spec"]["containers"][0]["command"] == ["sleep", "infinity"]


@pytest.mark.full
@needs_helm
@pytest.mark.parametrize(
    "values", [{"state": "gone"}, {"metrics": {"port": 0}}, {"rules": {}, "imagge": {}}]
)
def test_the_chart_refuses_what_it_does_not_know(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="schema"):
        helm.template(values)


def test_the_charts_versions_are_the_tools() -> None:
    chart = yaml.safe_load((helm.CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
