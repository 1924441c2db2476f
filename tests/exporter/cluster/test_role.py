"""The whole role against a real API over TLS: page, state over a kill, one-shot page, bad starts."""

from __future__ import annotations

import http.client
import logging
import queue
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from contract.ids import ClusterCode
from contract.version import VERSION
from exporter.cluster.role import run
from exporter.exposition.page import NATIVE_FAMILIES
from exporter.kube.access import KubeAccess
from exporter.settings import ClusterSettings
from lab.kube.double import ApiDouble
from tests.exporter.cluster.handmade import event, filtered, gpu_node, gpu_pod

PATIENCE_S = 30.0


@pytest.fixture
def double(tmp_path: Path) -> Iterator[ApiDouble]:
    with ApiDouble(tmp_path / "api") as server:
        for name, labels in (("kube-system", {}), ("team", {"capsule.clastix.io/tenant": "tenant-a"})):
            server.create("Namespace", _object("Namespace", {"metadata": {"name": name, "labels": labels}}))
        server.create("Node", _object("Node", gpu_node()))
        yield server


def _object(kind: str, body: dict[str, object]) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": kind, **body}


def _settings(access: KubeAccess, folder: Path, *, once: bool = False) -> ClusterSettings:
    return ClusterSettings(
        cluster=ClusterCode("lab"),
        kube=access,
        state_file=folder / "state.db",
        listen_host="127.0.0.1",
        listen_port=0,
        once=once,
    )


class _Ports(logging.Handler):
    """Hears on which port a role serves."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: queue.SimpleQueue[int] = queue.SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        match = re.fullmatch(r"serving http://127\.0\.0\.1:(\d+)/metrics", record.getMessage())
        if match:
            self.heard.put(int(match[1]))


@contextmanager
def _running(settings: ClusterSettings) -> Iterator[int]:
    """The role in a thread; gives its port."""
    stop = threading.Event()
    codes: list[int] = []
    ports = _Ports()
    log = logging.getLogger("exporter.cluster.role")
    log.addHandler(ports)
    log.setLevel(logging.INFO)
    thread = threading.Thread(target=lambda: codes.append(run(settings, stop=stop)))
    thread.start()
    try:
        yield ports.heard.get(timeout=PATIENCE_S)
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        log.removeHandler(ports)
    assert codes == [0]


def _scrape(port: int) -> dict[str, float]:
    with suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        pairs = (line.rpartition(" ") for line in lines if line.startswith("slicemeter_"))
        return {name.removeprefix("slicemeter_"): float(value) for name, _, value in pairs}
    return {}


def _until(port: int, holds: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """The first page for which it holds."""
    waiting = threading.Event()
    page: dict[str, float] = {}
    for _ in range(round(PATIENCE_S / 0.1)):
        page = _scrape(port)
        if page and holds(page):
            return page
        waiting.wait(0.1)
    raise AssertionError(f"it never held; the last page: {page}")


HELD = 'node_gpu_memory_bytes{node="gpu-node",state="allocated"}'
WAITING = 'node_lock_waiting_pods{node="gpu-node"}'
ACQUIRED = 'node_lock_transitions_total{node="gpu-node",outcome="acquired"}'
PENDING = 'pending_pods{namespace="team",reason="NodeLocked",tenant="tenant-a"}'


def test_the_role_shows_what_happens_and_goes_on_after_a_restart(double: ApiDouble, tmp_path: Path) -> None:
    settings = _settings(double.access, tmp_path)
    with _running(settings) as port:
        _until(port, lambda page: page.get(ACQUIRED) == 0)
        double.create("Pod", _object("Pod", gpu_pod("a", annotations=filtered(), node="gpu-node", bound_s=1)))
        double.create("Pod", _object("Pod", gpu_pod("b", annotations=filtered())))
        double.patch(
            "Node",
            "",
            "gpu-node",
            {"metadata": {"annotations": {"hami.io/mutex.lock": "2026-10-01T08:00:00Z,team,a"}}},
        )
        text = "node gpu-node has been locked within 5m0s"
        double.create("Event", _object("Event", _in_team(event("b", "BindingFailed", text, 3))))
        page = _until(port, lambda page: page.get(WAITING) == 1 and page.get(ACQUIRED) == 1)
        assert page[HELD] == 20_000 * 1_048_576
        assert page[PENDING] == 1
        assert page[f'build_info{{node="",role="cluster",version="{VERSION}"}}'] == 1
        # A histogram's series say what of it they are.
        shown = {name.partition("{")[0].removesuffix("_count") for name in page}
        assert shown >= NATIVE_FAMILIES
    with _running(settings) as port:
        page = _until(port, lambda page: page.get(WAITING) == 1)
        assert page[ACQUIRED] == 1
        assert page['counters_restarted_total{why="first_start"}'] == 0


def _in_team(body: dict[str, object]) -> dict[str, object]:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return body | {"metadata": {**metadata, "namespace": "team", "name": "an-event"}}


def test_once_prints_the_page_and_ends(
    double: ApiDouble, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(_settings(double.access, tmp_path, once=True), stop=threading.Event())
    out = capsys.readouterr().out
    assert code == 0
    assert 'slicemeter_node_gpu_slots{node="gpu-node",state="registered"} 10.0' in out
    assert not (tmp_path / "state.db").exists()


def test_an_api_that_cannot_be_reached_leaves_a_page_that_says_so(double: ApiDouble, tmp_path: Path) -> None:
    double.token_file.write_text("wrong")
    with _running(_settings(double.access, tmp_path)) as port:
        page = _until(port, lambda page: page.get('collector_success{collector="pods"}') == 0)
        assert not [name for name in page if name.startswith(("node_", "pending_"))]


def test_a_role_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(_settings(KubeAccess("http://plain:80"), tmp_path), stop=threading.Event())
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.startswith("slicemeter exporter cluster: ")
    assert captured.err.count("\n") == 1
