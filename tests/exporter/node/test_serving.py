"""What the node role serves beside `/metrics`, over HTTP, from real regions and pods."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from contract.catalogue import BY_NAME
from exporter.node import role
from exporter.node.role import run
from exporter.settings import NodeSettings
from tests.exporter.node.stand import CARD, DEADLINE_S, MIB, NODE, Stand, pod
from tests.real_prometheus import ask, prometheus, wait_for


class CompatStand(Stand):
    """A node whose exporter has `--compat hami`."""

    def settings(self, *, once: bool = False) -> NodeSettings:
        return dataclasses.replace(super().settings(once=once), compat="hami")

    def hami(self) -> str:
        return self.get("/metrics/hami")[1]

    def wait_for_hami(self, words: str) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while words not in (text := self.hami()):
            assert time.monotonic() < deadline, text
            threading.Event().wait(0.05)
        return text


@pytest.fixture
def compat(tmp_path: Path) -> Iterator[CompatStand]:
    found = CompatStand(tmp_path)
    found.open()
    yield found
    found.close()


@contextmanager
def at_work(stand: Stand) -> Iterator[None]:
    """A slice with a process that uses 512 MiB of 4,000 and 30 % of the card."""
    stand.double.create("Pod", pod("job"))
    with stand.region("job") as region:
        region.attach(7, 4_711).set_memory(0, context_bytes=100 * MIB, data_bytes=412 * MIB)
        stand.card.memory, stand.card.shares = {4_711: 612 * MIB}, {4_711: 30}
        stand.start()
        stand.wait_for(lambda page: (page.one("slice_sm_seconds_total") or 0) > 0)
        yield


def test_with_the_option_hamis_page_shows_the_slice_under_hamis_names(compat: CompatStand) -> None:
    with at_work(compat):
        text = compat.wait_for_hami("hami_container_device_utilization_ratio{")
        where = (
            f'{{container="main",device_uuid="{CARD}",namespace="team",pod="job",'
            'vdevice_index="0",zone="vGPU"}'
        )
        host = (
            f'{{device_index="0",device_type="NVIDIA-Tesla T4",device_uuid="{CARD}",'
            f'node="{NODE}",zone="vGPU"}}'
        )
        for line in (
            f"hami_vgpu_memory_used_bytes{where} 5.36870912e+08",
            f"hami_vgpu_memory_limit_bytes{where} 4.194304e+09",
            f"hami_container_device_utilization_ratio{where} 30.0",
            f"hami_host_gpu_utilization_ratio{host} 30.0",
            f"hami_host_gpu_memory_used_bytes{host} 1.061158912e+09",  # 612 MiB and 400 that the driver keeps
        ):
            assert line in text.splitlines()
        assert "slicemeter_" not in text
        assert "hami_" not in compat.page().text


def test_without_the_option_there_is_no_such_page(stand: Stand) -> None:
    with at_work(stand):
        assert stand.get("/metrics/hami")[0] == 404
        assert "hami_" not in stand.page().text


def test_a_source_that_hangs_empties_hamis_page_too(
    compat: CompatStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role, "STALE_AFTER_S", 0.5)
    with at_work(compat):
        compat.card.hang.set()
        deadline = time.monotonic() + DEADLINE_S
        while compat.hami():
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        assert compat.get("/metrics/hami") == (200, "")
        assert compat.get("/readyz")[0] == 503


def test_the_snapshot_tells_what_a_page_was_made_of(stand: Stand) -> None:
    with at_work(stand):
        status, text = stand.get("/debug/snapshot")
        assert status == 200
        snapshot = json.loads(text)
        [view] = snapshot["slices"]
        assert view["key"] == {
            "pod_uid": "uid-job",
            "container": "main",
            "device_uuid": CARD,
            "is_slice": True,
        }
        assert view["gauges"]["used_bytes"] == 512 * MIB
        assert view["rate"] == {"ppm": 300_000, "source": "nvml"}
        assert view["totals"]["sm_ppm_ms"] > 0
        assert snapshot["devices"][0]["reading"]["model"] == "Tesla T4"


def test_every_family_of_ours_is_on_the_page_once_described_and_in_the_catalogue(stand: Stand) -> None:
    with at_work(stand):
        text = stand.page().text
    described = re.findall(r"^# HELP slicemeter_(\w+) (.*)$", text, re.MULTILINE)
    typed = re.findall(r"^# TYPE slicemeter_(\w+) (\w+)$", text, re.MULTILINE)
    shown = {name for name, _ in typed}
    assert len(described) == len(typed) == len(shown) == len({name for name, _ in described})
    for name, kind in typed:
        family = BY_NAME[name]
        assert "node" in family.emitters
        assert kind == ("gauge" if family.type == "info" else family.type)
        assert dict(described)[name] == family.help
    assert set(re.findall(r"^slicemeter_(\w+?)[{ ]", text, re.MULTILINE)) == shown


def test_the_series_budget_of_the_settings_is_kept(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = stand.settings
    monkeypatch.setattr(stand, "settings", lambda: dataclasses.replace(settings(), series_budget=1))
    stand.double.create("Pod", pod("job"))
    stand.start()
    page = stand.wait_for(lambda page: (page.one("series_dropped_total") or 0) > 0)
    assert page.find("slice_info") == page.find("device_info") == []
    assert page.find("snapshot_timestamp_seconds") != []


def test_a_bad_web_config_file_ends_the_start_with_one_line(
    stand: Stand, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "web.yml"
    file.write_text("tls_server_config: {cert_file: tls.crt}")
    settings = dataclasses.replace(stand.settings(), web_config_file=file)
    assert run(settings, None, stop=threading.Event()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        f"slicemeter exporter node: web config file {file}: tls_server_config.key_file: is missing; "
        "without TLS leave tls_server_config out"
    )
    assert not settings.state_file.exists()


# Of HAMi's dashboard (dashboards/hami-vgpu-dashboard.json), what uses families of its monitor.
MONITORS = [
    '100 * hami_vgpu_memory_used_bytes{namespace=~"team"} / hami_vgpu_memory_limit_bytes{namespace=~"team"}',
    'hami_container_device_utilization_ratio{namespace=~"team"}',
    'hami_vgpu_memory_limit_bytes{namespace=~"team"}',
    'hami_vgpu_memory_used_bytes{namespace=~"team"}',
    'topk(10, hami_vgpu_memory_used_bytes{namespace=~"team"})',
    f'hami_host_gpu_memory_used_bytes and on (device_uuid) hami_gpu_memory_limit_bytes{{node=~"{NODE}"}}',
    f'hami_host_gpu_utilization_ratio and on (device_uuid) hami_gpu_memory_limit_bytes{{node=~"{NODE}"}}',
]
OF_THE_SCHEDULER = (
    "# TYPE hami_gpu_memory_limit_bytes gauge\n"
    f'hami_gpu_memory_limit_bytes{{device_index="0",device_type="NVIDIA-Tesla T4",device_uuid="{CARD}",'
    f'node="{NODE}",zone="vGPU"}} 1.610612736e+10\n'
)
"""What HAMi's scheduler says of the card: two expressions join with it."""


class Scheduler(BaseHTTPRequestHandler):
    """HAMi's scheduler, as far as Prometheus sees it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(OF_THE_SCHEDULER.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's signature
        pass


@contextmanager
def scheduler() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scheduler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.promtool
def test_hamis_own_dashboard_has_data_on_a_prometheus_that_scrapes_the_page(
    compat: CompatStand, tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    program = need_tool("prometheus", "prometheus")
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with (
        at_work(compat),
        scheduler() as port,
        prometheus(program, folder, (compat._port, "/metrics/hami"), (port, "/metrics")) as address,
    ):
        for expression in MONITORS:
            assert len(wait_for(address, expression)) == 1
        [used] = ask(address, MONITORS[0])
        # 512 of 4,000 MiB.
        assert float(used["value"][1]) == pytest.approx(12.8)
