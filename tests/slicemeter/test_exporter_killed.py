"""`kill -9` of the real node exporter: no counter goes back, and no second is lost unsaid or told twice."""

from __future__ import annotations

import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from contract.facts import AllocationFact, Fact, SliceUsageFact
from lab.kube.double import ApiDouble
from lab.workloads.region_writer import RegionFile
from tests.exporter.node.clocked import pod_at
from tests.exporter.node.program import Program
from tests.exporter.node.stand import Page, Stand
from tests.exporter.node.test_duty_cycle import PID, LiveCard
from tests.exporter.nvidia.driver import build, environment
from tests.exporter.nvidia.duty import Trace

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


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    found.open()
    yield found
    found.close()


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


KILLS = 15
SLEWED_MS = 2
"""How far the machine's wall clock may be corrected against its boot clock while one epoch lasts."""


@pytest.mark.timed
def test_after_kills_at_any_moment_every_second_is_counted_once_or_counted_as_lost(
    stand: Stand, tmp_path: Path
) -> None:
    chance = random.Random(20_261_130)
    (tmp_path / "nvml").mkdir()
    card = LiveCard(tmp_path / "answers", Trace([40]))
    exporter = Program(
        tmp_path,
        stand.double,
        environ=environment(build(tmp_path / "nvml"), card.answers),
        # Nobody listens there: facts wait in the outbox.
        flags={
            "--sample-interval-seconds": "0.2",
            "--accounting-url": "http://127.0.0.1:9",
            "--push-interval-seconds": "1",
        },
    )
    stand.double.create("Pod", pod_at("job", int(time.time() - 60) * 1_000))
    seen: list[Page] = []
    away_s = 0.0
    with stand.region("job") as region, card, exporter:
        region.attach(7, PID).set_memory(0, data_bytes=64 * MIB)
        for _ in range(KILLS):
            first = exporter.wait_for(lambda page: page.find("slice_info") != [])
            if seen:
                away_s += _stamp(first) - _stamp(seen[-1])
            seen.append(first)
            until = time.monotonic() + chance.uniform(0, 1.5)
            while time.monotonic() < until:
                page = Page(exporter.get("/metrics")[1])
                seen += [page] if page.find("slice_info") else []
            exporter.kill()
            exporter.start()
            # Some die before they have begun.
            if chance.random() < 0.3:
                threading.Event().wait(chance.uniform(0, 1.0))
                exporter.kill()
                exporter.start()
        last = exporter.wait_for(lambda page: page.find("slice_info") != [])
        away_s += _stamp(last) - _stamp(seen[-1])
        seen.append(last)
        assert exporter.process is not None
        exporter.process.terminate()
        assert exporter.process.wait(30) == 0

    for name in COUNTERS:
        values = [sum(page.find(name)) for page in seen if page.find(name)]
        assert values == sorted(values), name
    # What was lost is the time from the last stored tick to the first of the next run, and no more.
    lost_s = last.one("slice_unknown_seconds_total", reason="gap") or 0
    assert 0 < lost_s <= away_s + 0.002 * len(seen)
    _facts_tell_every_second_once(stand.outbox(), last)


def _stamp(page: Page) -> float:
    return page.one("snapshot_timestamp_seconds") or 0


def _facts_tell_every_second_once(facts: Sequence[Fact], last: Page) -> None:
    assert len([fact for fact in facts if isinstance(fact, AllocationFact)]) == 1
    use = sorted((fact for fact in facts if isinstance(fact, SliceUsageFact)), key=lambda fact: fact.from_ms)
    assert len({(fact.epoch, fact.hour_ms) for fact in use}) == len(use) > KILLS
    for earlier, later in pairwise(use):
        # One epoch begins where the other ended, unless the machine's clock was slewed meanwhile.
        assert 0 <= later.from_ms - earlier.to_ms <= SLEWED_MS
    told = [fact.covered_ms + fact.unknown_ms - (fact.to_ms - fact.from_ms) for fact in use[:-1]]
    assert all(-SLEWED_MS <= untold_ms <= 0 for untold_ms in told), told
    total_s = sum(fact.sm_ppm_ms for fact in use) / 1e9
    on_page_s = last.one("slice_sm_seconds_total") or 0
    # The last tick before the end may have come after the last page.
    assert on_page_s - 1e-6 <= total_s <= on_page_s + 0.4 * 2
    covered_s = sum(fact.covered_ms for fact in use) / 1_000
    # The card is at 40 % all the time; what the driver had not sampled yet at a kill is at most a second.
    assert 0.4 * (covered_s - len(use)) <= total_s <= 0.4 * (covered_s + len(use))
