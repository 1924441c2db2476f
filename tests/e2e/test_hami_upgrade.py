"""HAMi goes from 2.9 to 2.10 under running pods: both kinds on one card, no gap in the bill. Real processes.

2.9 writes an empty entry for a container without a GPU, 2.10.0 leaves it out; the register annotation loses
its pair score and gains nothing for a card that is not cut by MIG (`reference/hami-kubernetes.md §1, §3.3`).
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.tenants.registry import add_account, add_cluster
from lab.kube.json_object import JsonObject
from tests.exporter.node.clocked import pod_at
from tests.exporter.node.program import PATIENCE_S, Program, free_port
from tests.exporter.node.stand import CARD, NODE, Stand

OF_2_9 = (
    f'[{{"id":"{CARD}","count":10,"devmem":15360,"devcore":100,"type":"NVIDIA-Tesla T4","mode":"hami-core",'
    '"health":true,"devicepairscore":{}}]'
)
OF_2_10 = (
    f'[{{"id":"{CARD}","count":10,"devmem":15360,"devcore":100,"type":"NVIDIA-Tesla T4","mode":"hami-core",'
    '"health":true}]'
)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path, is_mock=True)
    found.open()
    register(found, OF_2_9, {"hami.io/node-handshake": "Requesting_2026-11-01 10:00:00"})
    yield found
    found.close()


def register(stand: Stand, text: str, more: JsonObject) -> None:
    annotations = {"hami.io/node-nvidia-register": text} | more
    stand.double.patch("Node", "", NODE, {"metadata": {"annotations": annotations}})


def pod_of(name: str, bound_ms: int, entry: str) -> JsonObject:
    """A pod whose init container asks for no GPU and whose second container does."""
    pod = pod_at(name, bound_ms)
    pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"] = entry
    pod["spec"]["initContainers"] = [{"name": "setup"}]
    return pod


def ended(pod: JsonObject, ended_ms: int) -> JsonObject:
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ended_ms // 1_000))
    state = {"terminated": {"exitCode": 0, "finishedAt": finished}}
    status = pod["status"] | {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": state}]}
    return pod | {"status": status}


@pytest.fixture
def books(tmp_path: Path) -> Path:
    path = tmp_path / "books.sqlite"
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    with database.writing() as session:
        for code, kind in (("acme", "tenant"), ("platform", "platform")):
            add_account(
                session, code, kind=kind, currency="EUR", time_zone="UTC", grace_days=3,  # type: ignore[arg-type]
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
        add_cluster(session, "c1", account="acme", platform_account="platform", by=COMMAND_LINE, now_ms=0)
        token = create_token(session, role="reporter", cluster="c1", by=COMMAND_LINE, now_ms=0)
    (tmp_path / "reporter").write_text(token)
    database.close()
    return path


@contextmanager
def process(log_file: Path, *words: str) -> Iterator[None]:
    with log_file.open("ab") as log:
        running = subprocess.Popen([sys.executable, "-m", "slicemeter", *words], stdout=log, stderr=log)
    try:
        yield
    finally:
        running.terminate()
        running.wait(PATIENCE_S)


@contextmanager
def both_roles(stand: Stand, folder: Path, books: Path) -> Iterator[Program]:
    """Accounting and both exporters, all pushing each second; gives the node's exporter."""
    port = free_port()
    service = {
        "--accounting-url": f"http://127.0.0.1:{port}",
        "--accounting-token-file": str(folder / "reporter"),
        "--push-interval-seconds": "1",
    }
    of_cluster = service | {
        "--cluster": "c1",
        "--kube-api-url": stand.double.url,
        "--kube-ca-file": str(stand.double.ca_file),
        "--kube-token-file": str(stand.double.token_file),
        "--state-file": str(folder / "cluster.db"),
        "--listen-host": "127.0.0.1",
        "--listen-port": str(free_port()),
    }
    words = [word for flag in of_cluster.items() for word in flag]
    serve = ("serve", "--listen", f"127.0.0.1:{port}", "--database", f"sqlite:///{books}")
    node = Program(folder, stand.double, flags=service)
    with (
        process(folder / "accounting.log", "accounting", *serve),
        process(folder / "cluster.log", "exporter", "cluster", *words),
        node,
    ):
        yield node


def rows(books: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{books}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.2)


def command(books: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "slicemeter", "accounting", *words, "--json", "--database", f"sqlite:///{books}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


SLICES = "SELECT pod, container, witness, mem_mib, core_percent FROM allocation_report ORDER BY 1, 3"
ENDED = "SELECT count(*) FROM allocation_report WHERE ended_at_ms IS NOT NULL"
PRESENT = "SELECT witness, state, model, count(*) FROM presence_report GROUP BY 1, 2, 3 ORDER BY 1"


@pytest.mark.slow
def test_pods_of_both_releases_share_a_card_and_none_loses_a_second(
    stand: Stand, tmp_path: Path, books: Path
) -> None:
    first_ms = (time.time_ns() // 1_000_000_000 - 600) * 1_000
    old = pod_of("of-2-9", first_ms, f";{CARD},NVIDIA,3840,25:;")
    stand.double.create("Pod", old)
    with both_roles(stand, tmp_path, books) as node:
        seen = [("of-2-9", "main", witness, 3_840, 25) for witness in ("cluster", "node")]
        wait_until(lambda: rows(books, SLICES) == seen)

        # The scheduler and the device plugin are replaced; the pod that runs keeps what 2.9 wrote.
        register(stand, OF_2_10, {"hami.io/node-handshake": None})
        second_ms = time.time_ns() // 1_000_000_000 * 1_000
        new = pod_of("of-2-10", second_ms, f"{CARD},NVIDIA,7680,50:;")
        stand.double.create("Pod", new)
        seen = [("of-2-10", "main", witness, 7_680, 50) for witness in ("cluster", "node")] + seen
        wait_until(lambda: rows(books, SLICES) == seen)
        page = node.wait_for(lambda page: len(page.find("slice_info")) == 2)
        assert page.one("device_slots_allocated") == 2
        assert page.one("device_memory_allocated_bytes") == 11_520 * 1_048_576
        assert sum(page.find("annotation_errors_total")) == 0

        ended_ms = time.time_ns() // 1_000_000_000 * 1_000
        for pod in (old, new):
            stand.double.apply("Pod", ended(pod, ended_ms))
        wait_until(lambda: rows(books, ENDED) == [(4,)])
        node.wait_for(lambda page: page.one("outbox_facts") == 0)

    assert {(witness, state, model, 1) for witness in ("cluster", "node")
            for state, model in [("healthy", "NVIDIA-Tesla T4")]} == set(rows(books, PRESENT)), (
        "one unbroken presence of each witness"
    )  # fmt: skip
    months = sorted({time.strftime("%Y-%m", time.gmtime(at_ms / 1_000)) for at_ms in (first_ms, ended_ms)})
    command(books, "price", "set", "--sku", "gpu-slice", "--model", "NVIDIA-Tesla T4", "--price", "3600",
            "--currency", "EUR", "--from", months[0] + "-01")  # fmt: skip
    command(books, "rate")
    statements = [command(books, "statement", month, "--account", "acme") for month in months]
    # A card costs 1 EUR a second; a quarter and a half of it were held.
    owed = Decimal(ended_ms - first_ms) / 4_000 + Decimal(ended_ms - second_ms) / 2_000
    assert sum(Decimal(each["amount"]) for each in statements) == owed
