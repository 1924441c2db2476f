"""Two exporters started on one node: it is flagged, and the statement counts once. Real processes."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.api.app import create_app
from accounting.api.serving import address_of, listen
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.tenants.registry import add_account, add_cluster
from lab.kube.json_object import JsonObject
from tests.exporter.node.clocked import pod_at
from tests.exporter.node.program import PATIENCE_S, Program
from tests.exporter.node.stand import MIB, NODE, NODE_UID, Stand
from tests.exporter.node.test_duty_cycle import PID, LiveCard
from tests.exporter.nvidia.driver import build, environment
from tests.exporter.nvidia.duty import Trace

NOBODY = "http://127.0.0.1:9"


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    found.open()
    yield found
    found.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'books.sqlite'}"


@pytest.fixture
def service(url: str, tmp_path: Path) -> Iterator[str]:
    """Accounting on the real clock, with a token for the node; its address."""
    database = Database(url)
    upgrade(database)
    with database.writing() as session:
        for code, kind in (("acme", "tenant"), ("platform", "platform")):
            add_account(
                session, code, kind=kind, currency="EUR", time_zone="UTC", grace_days=3,  # type: ignore[arg-type]
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        add_cluster(session, "c1", account="acme", platform_account="platform", by=COMMAND_LINE, now_ms=0)
        token = create_token(
            session, role="reporter", cluster="c1", node_uid=NODE_UID, by=COMMAND_LINE, now_ms=0
        )
    (tmp_path / "reporter").write_text(token)
    with listen("127.0.0.1:0") as sock:
        app = create_app(Settings(are_metrics_open=True), database=database, clock=wall_ms)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        yield address_of(sock)
        server.should_exit = True
        thread.join()
    database.close()


@contextmanager
def two_exporters(stand: Stand, folder: Path, service: str) -> Iterator[tuple[Program, Program]]:
    """Both see the same card at 40 %, and push each second."""
    (folder / "nvml").mkdir()
    card = LiveCard(folder / "answers", Trace([40]))
    environ = environment(build(folder / "nvml"), card.answers)
    flags = {
        "--accounting-url": service,
        "--accounting-token-file": str(folder / "reporter"),
        "--push-interval-seconds": "1",
        "--sample-interval-seconds": "0.5",
    }
    first, second = (
        Program(
            folder, stand.double, environ=environ, flags=flags | {"--state-file": str(folder / f"{name}.db")}
        )
        for name in ("first", "second")
    )
    with card, first, second:
        yield first, second


def command(url: str, *words: str) -> dict[str, Any]:
    """A command of accounting on the books, and its JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "slicemeter", "accounting", *words, "--json", "--database", url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def contested(service: str) -> list[str]:
    with urllib.request.urlopen(f"{service}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    return re.findall(r"^slicemeter_source_contested_timestamp_seconds(\{.*\}) ", page, re.MULTILINE)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.2)


def ended(pod: JsonObject, ended_ms: int) -> JsonObject:
    """The pod after its container has finished."""
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended_ms // 1_000))
    status = pod["status"] | {
        "phase": "Succeeded",
        "containerStatuses": [
            {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": finished}}}
        ],
    }
    return pod | {"status": status}


@pytest.mark.slow
def test_of_two_exporters_on_a_node_one_counts_and_it_is_said(
    stand: Stand, tmp_path: Path, service: str, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    bound_ms = (wall_ms() // 1_000 - 600) * 1_000
    job = pod_at("job", bound_ms, memory_mib=3_840, cores=25)
    stand.double.create("Pod", job)
    assert contested(service) == []
    begun_ms = wall_ms()
    with (
        stand.region("job") as region,
        caplog.at_level(logging.WARNING, "accounting.facts.source"),
        two_exporters(stand, tmp_path, service) as exporters,
    ):
        region.attach(7, PID).set_memory(0, data_bytes=64 * MIB)
        measured = [
            exporter.wait_for(lambda page: (page.one("slice_sm_seconds_total") or 0) > 2)
            for exporter in exporters
        ]
        wait_until(lambda: contested(service))
        ended_ms = wall_ms() // 1_000 * 1_000
        stand.double.apply("Pod", ended(job, ended_ms))
        for exporter in exporters:
            exporter.wait_for(lambda page: not page.find("slice_info") and page.one("outbox_facts") == 0)

    assert contested(service) == [f'{{cluster="c1",node="{NODE}"}}']
    assert "two exporters report for" in caplog.text
    seconds = [page.one("slice_sm_seconds_total") or 0 for page in measured]
    assert min(seconds) > 2

    months = sorted({time.strftime("%Y-%m", time.gmtime(at_ms / 1_000)) for at_ms in (bound_ms, ended_ms)})
    command(url, "price", "set", "--sku", "gpu-slice", "--model", "NVIDIA-Tesla T4", "--price", "3600",
            "--currency", "EUR", "--from", months[0] + "-01")  # fmt: skip
    command(url, "rate")
    statements = [command(url, "statement", month, "--account", "acme") for month in months]
    # A quarter of a card that costs 1 EUR a second.
    held_s = (ended_ms - bound_ms) // 1_000
    assert sum(Decimal(each["amount"]) for each in statements) == Decimal(held_s) / 4
    covered_ms = sum(each["use"]["covered_ms"] for each in statements if each["use"])
    assert 0 < covered_ms <= ended_ms - begun_ms + 1_000
    assert sum(each["use"]["sm_ppm_ms"] for each in statements if each["use"]) <= 400_000 * covered_ms


def test_a_second_exporter_on_the_same_state_file_is_refused_in_one_line(
    stand: Stand, tmp_path: Path
) -> None:
    with Program(tmp_path, stand.double) as first:
        first.wait_for(lambda page: page.find("snapshot_timestamp_seconds") != [])
        second = Program(tmp_path, stand.double)
        second.start()
        assert second.process is not None
        assert second.process.wait(PATIENCE_S) == 2
        [line] = second.log.read_text().splitlines()
        assert f"state file {tmp_path / 'state.db'}: in use by another exporter; stop it, or" in line
        assert first.get("/readyz")[0] == 200
