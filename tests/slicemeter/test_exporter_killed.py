"""`kill -9` of the real node exporter: no counter that was ever on a page goes back."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.kube.double import ApiDouble
from lab.workloads.region_writer import RegionFile

PATIENCE_S = 30.0
MIB = 1_048_576
CARD = "GPU-859b872c-0ba2-97b0-10b4-8b7185c55039"
COUNTERS = (
    "slice_sm_seconds_total",
    "slice_memory_used_byte_seconds_total",
    "slice_memory_allocated_byte_seconds_total",
    "slice_unknown_seconds_total",
    "tenant_sm_seconds_total",
    "device_busy_seconds_total",
)


def _cluster(folder: Path) -> ApiDouble:
    double = ApiDouble(folder / "kube")
    double.create("Namespace", {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "ks"}})
    double.create("Namespace", {"kind": "Namespace", "metadata": {"name": "team", "uid": "ns"}})
    register = f"{CARD},10,15360,100,NVIDIA-Tesla T4,0,true:"
    double.create(
        "Node",
        {
            "kind": "Node",
            "metadata": {
                "name": "worker-1",
                "uid": "node-uid",
                "annotations": {"hami.io/node-nvidia-register": register},
            },
        },
    )
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-10-01T00:00:00Z"}
    double.create(
        "Pod",
        {
            "kind": "Pod",
            "metadata": {
                "name": "job",
                "namespace": "team",
                "uid": "uid-job",
                "annotations": {"hami.io/vgpu-devices-allocated": f"{CARD},NVIDIA,4000,30:;"},
            },
            "spec": {
                "nodeName": "worker-1",
                "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
            "status": {"phase": "Running", "conditions": [scheduled]},
        },
    )
    return double


@contextmanager
def _exporter(folder: Path, double: ApiDouble, port: int) -> Iterator[subprocess.Popen[bytes]]:
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
        "--sample-interval-seconds": "0.2",
    }
    words = [word for flag in flags.items() for word in flag]
    command = [sys.executable, "-m", "slicemeter", "exporter", "node", *words]
    with (folder / "log").open("ab") as log, subprocess.Popen(command, stderr=log) as process:
        yield process
        process.kill()


def _counters(port: int) -> dict[str, float]:
    """Every counter series of the page by its text; empty while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    found = re.findall(r"^slicemeter_(\w+)(\{[^\n]*\})? (\S+)$", text, re.MULTILINE)
    return {name + labels: float(value) for name, labels, value in found if name in COUNTERS}


def _wait(port: int, above: float) -> dict[str, float]:
    """The first page on which the slice's SM time is above a figure."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        page = _counters(port)
        if any(key.startswith("slice_sm_seconds_total") and page[key] > above for key in page):
            return page
        threading.Event().wait(0.03)
    raise AssertionError("the slice's counter did not grow")


def test_no_counter_goes_back_however_often_the_exporter_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "containers" / "uid-job_main"
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    highest: dict[str, float] = {}
    with (
        _cluster(tmp_path) as double,
        RegionFile(
            folder / "x.cache", uuids=[CARD], limits_bytes=[4_000 * MIB], sm_limit_percent=30
        ) as region,
    ):
        slot = region.attach(7, 0)
        slot.set_memory(0, data_bytes=64 * MIB)
        slot.set_monitorused(0, 64 * MIB)
        slot.set_sm(0, 30)
        for _ in range(4):
            sm_before = max(
                (value for key, value in highest.items() if key.startswith("slice_sm")), default=0.0
            )
            with _exporter(tmp_path, double, port):
                page = _wait(port, above=sm_before)
            assert set(highest) <= set(page)
            for key, value in page.items():
                assert value >= highest.get(key, 0.0), key
            highest = page
    gaps = [value for key, value in highest.items() if 'reason="gap"' in key]
    assert gaps
    assert gaps[0] > 0
