"""A driver call that never returns, in the real program: the page answers, says how old it is, and ends.

The call hangs inside the driver's library, where no signal and no timeout of Python's reaches it.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.kube.double import ApiDouble
from tests.exporter.node.stand import Page
from tests.exporter.nvidia.driver import environment, node

PATIENCE_S = 30.0
ENERGY = "0 nvmlDeviceGetTotalEnergyConsumption"
HANGS = 9999

PROGRAM = """\
import sys
from exporter.node import role
role.STALE_AFTER_S, role.STOP_WAIT_S = 1.0, 0.2  # the test's patience, not the product's
from slicemeter.exporter import main
sys.exit(main(sys.argv[1:]))
"""


class Exporter:
    """One real node role behind which the mock driver stands."""

    def __init__(self, folder: Path, library: Path, double: ApiDouble) -> None:
        self.answers = folder / "answers"
        self.say(0)
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = int(server.getsockname()[1])
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
            "--sample-interval-seconds": "0.2",
            "--listen-host": "127.0.0.1",
            "--listen-port": str(self.port),
        }
        words = [word for flag in flags.items() for word in flag]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "node", *words], env=environment(library, self.answers)
        )

    def say(self, code: int) -> None:
        """What the driver answers about energy; replaced as a whole, for it reads while we write."""
        _, text = node(f"{ENERGY} {code} 5", "0 nvmlDeviceGetTemperature 0 41")
        draft = self.answers.with_suffix(".new")
        draft.write_text(str(text))
        draft.replace(self.answers)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def wait_for(self, path: str, condition: Callable[[int, str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status, body = self.get(path)
            if condition(status, body):
                return body
            assert self.process.poll() is None, "the exporter ended"
            assert time.monotonic() < deadline, (status, body)
            threading.Event().wait(0.05)


@pytest.fixture
def exporter(tmp_path: Path, library: Path) -> Iterator[Exporter]:
    double = ApiDouble(tmp_path / "kube")
    double.create("Namespace", {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "ks"}})
    double.create("Node", {"kind": "Node", "metadata": {"name": "worker-1", "uid": "node-uid"}})
    with double:
        found = Exporter(tmp_path, library, double)
        yield found
        found.process.kill()
        found.process.wait()


def test_a_driver_call_that_never_returns_leaves_a_page_that_stands_still(exporter: Exporter) -> None:
    exporter.wait_for("/readyz", lambda status, _: status == 200)
    exporter.wait_for("/metrics", lambda _, text: "device_temperature_celsius{" in text)
    exporter.say(HANGS)
    reasons = exporter.wait_for("/readyz", lambda status, _: status == 503)
    assert "a source hangs" in reasons
    pages = [
        Page(exporter.wait_for("/metrics", lambda _, text: "device_temperature_celsius{" not in text))
        for _ in range(2)
    ]
    stamps = [page.one("snapshot_timestamp_seconds") for page in pages]
    assert stamps[0] == stamps[1]
    assert stamps[0] is not None
    assert pages[0].one("collector_success", collector="nvml") == 0
    assert exporter.get("/healthz")[0] == 200
    exporter.say(0)
    exporter.wait_for("/readyz", lambda status, _: status == 200)
    later = Page(exporter.wait_for("/metrics", lambda _, text: "device_temperature_celsius{" in text))
    assert (later.one("snapshot_timestamp_seconds") or 0) > stamps[0]


def test_the_program_ends_although_a_driver_call_never_returns(exporter: Exporter) -> None:
    exporter.wait_for("/readyz", lambda status, _: status == 200)
    exporter.say(HANGS)
    exporter.wait_for("/readyz", lambda status, _: status == 503)
    exporter.process.send_signal(signal.SIGTERM)
    assert exporter.process.wait(PATIENCE_S) == 0
