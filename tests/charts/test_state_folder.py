"""The node role's state folder: made by the kubelet as root's, handed over by the init container, then used.

The init container's own command runs here as root with no capability but CHOWN, as the chart says; then the
exporter takes its first view under the chart's uid without any capability.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.charts.rendering import CASES, ROOT, Manifest, containers, golden, pod_of

UID = 65_532
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can play the init container"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (Debian: util-linux)"),
]


def node_pod() -> Manifest:
    [values] = [each for each in CASES if each.stem == "default-values"]
    [pod] = [pod_of(each) for each in golden(values) if each["kind"] == "DaemonSet"]
    assert pod is not None
    return pod


@pytest.fixture
def folder() -> Iterator[Path]:
    """As the kubelet makes a hostPath: root's, 0755, below folders that everybody may pass."""
    base = Path(tempfile.mkdtemp(prefix="slicemeter-state-"))
    base.chmod(0o755)
    made = base / "state"
    made.mkdir(mode=0o755)
    os.chown(made, 0, 0)
    yield made
    shutil.rmtree(base)


def hand_over(folder: Path, capabilities: list[str]) -> subprocess.CompletedProcess[str]:
    """The init container's command on a folder, as root with these capabilities alone."""
    [container] = [each for each in containers(node_pod()) if each["name"] == "state-folder"]
    mount = container["volumeMounts"][0]["mountPath"]
    command = [word.replace(mount, str(folder)) for word in container["command"]]
    assert command[0] == "python3"
    kept = ",".join(["-all", *(f"+{each.lower()}" for each in capabilities)])
    words = [
        "setpriv",
        f"--bounding-set={kept}",
        f"--inh-caps={kept}",
        "--no-new-privs",
        sys.executable,
        *command[1:],
    ]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@contextmanager
def exporter(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """The node role under the chart's uid; no API server answers, which it bears."""
    words = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *_capabilities()]
    words += ["--no-new-privs", sys.executable, "-m", "slicemeter", "exporter", "node", "--cluster", "c"]
    words += ["--node-name", "n", "--kube-api-url", "https://127.0.0.1:1", "--kube-token-file", ""]
    words += ["--kube-ca-file", "", "--container-roots", "/nowhere", "--listen-host", "127.0.0.1"]
    words += ["--listen-port", str(port), "--state-file", str(folder / "state.db")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment, cwd="/") as started:
        try:
            yield started
        finally:
            started.terminate()


def page_of(started: subprocess.Popen[str], port: int) -> str:
    """Its page, once there is one."""
    while started.poll() is None:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            page: str = answer.read().decode()
            if "slicemeter_snapshot_timestamp_seconds" in page:
                return page
        time.sleep(0.05)
    raise AssertionError(started.communicate()[1])


def test_the_init_container_adds_the_one_capability_that_it_needs(folder: Path) -> None:
    [container] = [each for each in containers(node_pod()) if each["name"] == "state-folder"]
    added = container["securityContext"]["capabilities"]["add"]
    assert added == ["CHOWN"]
    refused = hand_over(folder, [])
    assert refused.returncode != 0
    assert "PermissionError" in refused.stderr
    assert hand_over(folder, added).returncode == 0
    assert (folder.stat().st_uid, folder.stat().st_gid) == (UID, UID)
    assert hand_over(folder, added).returncode == 0, "again, with each new pod"


@pytest.mark.slow
def test_the_exporter_keeps_its_state_in_the_folder_that_was_handed_over(folder: Path) -> None:
    with exporter(folder, free_port()) as refused:
        said = refused.communicate(timeout=60)[1]
    assert refused.returncode == 2
    assert str(folder) in said
    assert hand_over(folder, ["CHOWN"]).returncode == 0
    port = free_port()
    with exporter(folder, port) as started:
        page = page_of(started, port)
    assert "slicemeter_outbox_facts 0" in page
    assert started.returncode == 0
    assert (folder / "state.db").stat().st_uid == UID


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def _capabilities() -> list[str]:
    """None; but where this Python or tree lies in a closed folder, the one to read what is there."""
    paths = [Path(sys.executable).resolve(), ROOT, Path(sys.executable).parent]
    if all(each.stat().st_mode & 0o001 for path in paths for each in [*path.parents]):
        return ["--bounding-set=-all", "--inh-caps=-all"]
    kept = "-all,+dac_read_search"
    return [f"--bounding-set={kept}", f"--inh-caps={kept}", f"--ambient-caps={kept}"]
