# SPDX-License-Identifier: BSD-2-Clause
"""The image of scripts/build-image, run as the DaemonSet has it run: with its capabilities and
mounts, on a root and a /proc/sys that can't be written. What a cluster adds to that isn't here.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from netns.backends_here import backend_fixture
from netns.trainings import Training, training
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.locks import RUN_DIR

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="the image takes mmdebstrap"),
]
backend = backend_fixture()

CHECKOUT = Path(__file__).parents[2]
POD = "kubepods-pod0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9.slice"
JOB = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's files, by what its index and manifest name."""
    folder = tmp_path_factory.mktemp("image")
    subprocess.run([CHECKOUT / "scripts/build-image", folder / "image.tar"], check=True)
    shutil.unpack_archive(folder / "image.tar", folder / "oci")

    def blob(described: dict[str, str]) -> Path:
        return folder / "oci/blobs" / described["digest"].replace(":", "/")

    (described,) = json.loads((folder / "oci/index.json").read_text())["manifests"]
    (layer,) = json.loads(blob(described).read_text())["layers"]
    root = folder / "root"
    root.mkdir()
    subprocess.run(["tar", "-xzf", blob(layer), "-C", root], check=True)
    return root


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    text = (CHECKOUT / "scripts/kubernetes/mltcp.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


class Pod:
    """The DaemonSet's pod, whose containers run by chroot in a mount namespace of their own."""

    def __init__(self, image: Path, folder: Path, manifests: dict[str, Any]) -> None:
        self._image = image
        self._spec = manifests["DaemonSet"]["spec"]["template"]["spec"]
        self._volumes = {}
        for each in self._spec["volumes"]:
            own = folder / each["name"]
            # Records of its own: what other testbeds left on this host may be there at any time.
            if "hostPath" in each and each["hostPath"]["path"] != str(RUN_DIR):
                own = Path(each["hostPath"]["path"])
            own.mkdir(parents=True, exist_ok=True)
            self._volumes[each["name"]] = own
        for name, text in manifests["ConfigMap"]["data"].items():
            (folder / "rules" / name).write_text(text)

    def command(self, kind: str, *words: str) -> list[str]:
        """The command line of the first container of the kind; words: others than its own."""
        container = self._spec[kind][0]
        limits = container["securityContext"]
        root = shlex.quote(str(self._image))
        lines = [
            f"mount --bind {root} {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --bind {root}/proc/sys {root}/proc/sys",
            f"mount -o remount,bind,ro {root}/proc/sys",
            f"mount -t sysfs -o ro sysfs {root}/sys",
        ]
        for each in container["volumeMounts"]:
            place = f"{root}{each['mountPath']}"
            source = shlex.quote(str(self._volumes[each["name"]]))
            lines += [f"mkdir -p {place}", f"mount --rbind {source} {place}"]
            if each.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {place}")
        if limits["readOnlyRootFilesystem"]:
            lines.append(f"mount -o remount,bind,ro {root}")
        added = (f"+{name.lower()}" for name in limits["capabilities"]["add"])
        bounding = ",".join(["-all", *added])
        run = shlex.join(words or container["command"])
        lines.append(
            f"exec chroot {root} /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin"
            " MLTCP_ALLOW_SKIPPED_CALLS=1"
            f" setpriv --bounding-set={bounding} --inh-caps=-all {run}"
        )
        script = "\n".join(["set -e", *lines])
        return ["unshare", "--mount", "--propagation=private", "sh", "-c", script]

    def run(self, kind: str, *words: str) -> str:
        done = subprocess.run(self.command(kind, *words), capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout


def published() -> str:
    """The agent's metrics, empty before it serves them."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:9477/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text


@contextlib.contextmanager
def in_pod(mark: str, **environment: str) -> Iterator[Training]:
    """A process that trains, in the cgroup of a pod."""
    with training(mark, **environment) as found:
        folder = cgroups.root() / POD
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.procs").write_text(str(found.process.pid))
        found.ask("connect")
        try:
            yield found
        finally:
            found.process.kill()
            found.process.wait()


def test_annotated_pods_are_attached_until_annotation_is_removed(
    backend: Backend, image: Path, tmp_path: Path, manifests: dict[str, Any]
) -> None:
    pod = Pod(image, tmp_path, manifests)
    pod.run("initContainers")
    assert backend.status().loaded
    try:
        with (
            in_pod("asks", MLTCP_ATTACH="on") as asks,
            in_pod("does-not") as other,
            open(tmp_path / "log", "w") as log,
        ):
            before = other.ccs()
            # The chart's `metrics`, with the prometheus_client of the image's Debian.
            words = ("mltcp", "agent", "--metrics", "127.0.0.1:9477")
            with subprocess.Popen(pod.command("containers", *words), stderr=log) as agent:
                try:
                    wait_for(lambda: asks.ccs() == ["mltcp"], "the pod that asks is attached")
                    wait_for(
                        lambda: JOB in (tmp_path / "log").read_text(), "the agent's log names it"
                    )
                    assert other.ccs() == before
                    wait_for(lambda: JOB in published(), "its metrics")
                finally:
                    agent.terminate()
                    agent.wait(PATIENCE_S)
            assert asks.ccs() == ["mltcp"]  # an update of the pods leaves jobs attached
            pod.run("initContainers", "mltcp", "unload", "--everything")  # state: absent
            assert asks.ccs() == before
            assert backend.status().loaded == ()
    finally:
        cgroups.remove(POD)
