"""Exporter and accounting are upgraded in either order, and no fact is lost: the programs of two versions.

The next version is this one with the number of its facts' schema raised by one before anything is imported:
a whole program of its own, as another image would be.
"""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.store.database import Database
from accounting.store.migrate import upgrade
from accounting.tenants.registry import add_account, add_cluster
from tests.exporter.node.clocked import pod_at
from tests.exporter.node.program import PATIENCE_S, Program, free_port
from tests.exporter.node.stand import NODE_UID, Page, Stand

NEXT = """
import importlib.util, sys
spec = importlib.util.find_spec("contract.facts")
text = open(spec.origin, encoding="utf-8").read()
assert text.count("\\nSCHEMA = 1\\n") == 1
module = importlib.util.module_from_spec(spec)
sys.modules["contract.facts"] = module
exec(compile(text.replace("\\nSCHEMA = 1\\n", "\\nSCHEMA = 2\\n"), spec.origin, "exec"), module.__dict__)
from slicemeter.cli import main
sys.exit(main(["{part}", *sys.argv[1:]]))
"""


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path, is_mock=True)
    found.open()
    yield found
    found.close()


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """An open ledger with one cluster; the node's token lies beside it."""
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
        token = create_token(
            session, role="reporter", cluster="c1", node_uid=NODE_UID, by=COMMAND_LINE, now_ms=0
        )
    (tmp_path / "reporter").write_text(token)
    database.close()
    return path


@contextmanager
def accounting(books: Path, port: int, *, is_next: bool) -> Iterator[None]:
    """Accounting, this version or the next, until the end of the block."""
    words = ["serve", "--listen", f"127.0.0.1:{port}", "--database", f"sqlite:///{books}"]
    entry = ["-c", NEXT.format(part="accounting")] if is_next else ["-m", "slicemeter", "accounting"]
    with (books.parent / "accounting.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, *entry, *words], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def exporter(stand: Stand, folder: Path, port: int, *, is_next: bool) -> Program:
    flags = {
        "--accounting-url": f"http://127.0.0.1:{port}",
        "--accounting-token-file": str(folder / "reporter"),
        "--push-interval-seconds": "1",
        "--sample-interval-seconds": "0.5",
    }
    return Program(folder, stand.double, flags=flags, code=NEXT.format(part="exporter") if is_next else None)


def stored(books: Path) -> list[tuple[str, int]]:
    """Pods by name and the confirmation that accounting has of each, in the order of their names."""
    connection = sqlite3.connect(f"file:{books}?mode=ro", uri=True)
    try:
        return connection.execute(
            "SELECT pod, max(confirmed_at_ms) FROM allocation_report GROUP BY pod ORDER BY pod"
        ).fetchall()
    finally:
        connection.close()


def wait_for_pods(books: Path, *names: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while [name for name, _ in stored(books)] != list(names):
        assert time.monotonic() < deadline, stored(books)
        threading.Event().wait(0.2)


def quarantined(books: Path) -> int:
    connection = sqlite3.connect(f"file:{books}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM quarantine").fetchone()[0])
    finally:
        connection.close()


def is_refused(page: Page) -> bool:
    return (page.one("push_total", result="refused") or 0) >= 1 and (page.one("outbox_facts") or 0) >= 2


@pytest.mark.slow
def test_whichever_is_upgraded_first_every_fact_arrives(stand: Stand, tmp_path: Path, books: Path) -> None:
    port = free_port()
    bound_ms = (time.time_ns() // 1_000_000_000 - 600) * 1_000

    # Accounting first: the exporter of before is understood by the accounting of after.
    stand.double.create("Pod", pod_at("before", bound_ms, memory_mib=1_000, cores=10))
    old, new = (exporter(stand, tmp_path, port, is_next=is_next) for is_next in (False, True))
    with accounting(books, port, is_next=True), old:
        wait_for_pods(books, "before")

    # The exporter first: accounting of before refuses it in words, and the facts wait on the node.
    stand.double.create("Pod", pod_at("between", bound_ms, memory_mib=1_000, cores=10))
    with accounting(books, port, is_next=False), new:
        page = new.wait_for(is_refused)
        assert page.one("facts_lost_total", reason="rejected") == 0
        log = new.log.read_text()
        assert re.search(r"writes facts of schema 2, this service reads up to 1; upgrade accounting", log), (
            log
        )
        stand.double.create("Pod", pod_at("meanwhile", bound_ms, memory_mib=1_000, cores=10))
        waiting = page.one("outbox_facts") or 0
        new.wait_for(lambda page: (page.one("outbox_facts") or 0) > waiting)
    assert [name for name, _ in stored(books)] == ["before"]

    # Accounting is upgraded, too; the exporter was killed in between and sends what it kept.
    with accounting(books, port, is_next=True), new:
        wait_for_pods(books, "before", "between", "meanwhile")
        new.wait_for(lambda page: (page.one("push_total", result="ok") or 0) >= 1)

    # And back again: an exporter that is rolled back is still understood.
    stand.double.create("Pod", pod_at("rolled-back", bound_ms, memory_mib=1_000, cores=10))
    with accounting(books, port, is_next=True), old:
        wait_for_pods(books, "before", "between", "meanwhile", "rolled-back")
    assert quarantined(books) == 0
