"""The command: its errors, and one real process that is started, ready, and ended by SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from lab.kube.double import ApiDouble
from slicemeter.exporter import main

PATIENCE_S = 30.0


def test_without_a_role_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "node|cluster" in capsys.readouterr().out


def test_an_unknown_role_is_one_line_that_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pod"]) == 2
    error = capsys.readouterr().err
    assert error == 'slicemeter exporter: no role "pod"; there are: node, cluster\n'


def test_a_missing_setting_is_one_line_that_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SLICEMETER_")]:
        monkeypatch.delenv(name)
    assert main(["node", "--cluster", "c1", "--kube-api-url", "https://127.0.0.1:1"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "node_name" in error


def _node(folder: Path, double: ApiDouble, port: int, *more: str) -> list[str]:
    flags = {
        "--cluster": "c1",
        "--node-name": "worker-1",
        "--kube-api-url": double.url,
        "--kube-ca-file": str(double.ca_file),
        "--kube-token-file": str(double.token_file),
        "--state-file": str(folder / "state.db"),
        "--container-roots": str(folder / "containers"),
        "--proc-root": "",
        "--mig-lock-file": str(folder / "mig.lock"),
        "--listen-host": "127.0.0.1",
        "--listen-port": str(port),
    }
    words = [word for flag in flags.items() for word in flag]
    return [sys.executable, "-m", "slicemeter", "exporter", "node", *words, *more]


@pytest.fixture
def double(tmp_path: Path) -> ApiDouble:
    found = ApiDouble(tmp_path / "kube")
    found.create("Namespace", {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "ks"}})
    found.create("Node", {"kind": "Node", "metadata": {"name": "worker-1", "uid": "node-uid"}})
    return found


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def test_the_node_role_becomes_ready_and_ends_with_0_on_sigterm(tmp_path: Path, double: ApiDouble) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    with double, subprocess.Popen(_node(tmp_path, double, port), stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not _is_ready(port):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def test_once_prints_a_page_that_says_what_the_node_is(tmp_path: Path, double: ApiDouble) -> None:
    with double:
        done = subprocess.run(
            _node(tmp_path, double, 0, "--once"), capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    assert 'slicemeter_build_info{node="worker-1",role="node"' in done.stdout
    assert 'slicemeter_collector_success{collector="pods"} 1.0' in done.stdout
