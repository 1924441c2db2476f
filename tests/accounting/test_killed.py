"""`kill -9` of the real programs at many points: nothing is lost, nothing doubled.

The programs are forked from a process that has imported them already, so that a start takes milliseconds.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import func, select

from accounting.access.tokens import create_token
from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import KINDS, ingest
from accounting.facts.reading import Scope, read_lines
from accounting.ledger.calendar import Month, month_bounds_ms, month_of
from accounting.periods.issuing import list_issued
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from accounting.store.database import Database
from accounting.store.models import (
    AuditLog,
    BillingPeriod,
    DeviceHour,
    ExporterSource,
    IngestCounter,
    LedgerLine,
    Node,
    Quarantine,
    Tenant,
)
from accounting.tenants.registry import add_account, add_cluster
from contract.facts import (
    CONTENT_TYPE,
    FACTS_PATH,
    HEADER_KUBE_SYSTEM_UID,
    HEADER_SENT_AT,
    HEADER_SOURCE,
    AllocationFact,
    Fact,
    PresenceFact,
    SliceUsageFact,
    canonical_bytes,
)

NewBooks = Callable[[], AbstractContextManager[Database]]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
GRACE_MS = 900_000
HOURS, CARDS, SLICES, KILLS = 20, 2, 3, 15

NURSERY = """
import os, sys
import accounting.api.app, accounting.periods.close, uvicorn
from sqlalchemy import event
from sqlalchemy.engine import Engine
from slicemeter.accounting import main, close, rate, serve

for line in sys.stdin:
    dies_at, *words = line.split()
    child = os.fork()
    if child == 0:
        me, statements = os.getpid(), 0

        def die(*_):
            global statements
            statements += os.getpid() == me
            if statements == int(dies_at):
                os.kill(me, 9)

        if int(dies_at):
            event.listen(Engine, "before_cursor_execute", die)
            event.listen(Engine, "commit", die)
        print("started", me, flush=True)
        os._exit(main(words))
    _, status = os.waitpid(child, 0)
    print("ended", os.waitstatus_to_exitcode(status), flush=True)
"""


class Nursery:
    """Runs accounting commands in processes of their own, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._running: int | None = None

    def start(self, *words: str, dies_at: int = 0) -> int:
        """Start a command and give its pid; it kills itself at a statement, if one is named."""
        assert self._process.stdin is not None
        print(dies_at, *words, file=self._process.stdin, flush=True)
        self._running = int(self.wait_for("started"))
        return self._running

    def wait_for(self, word: str) -> str:
        """What a line says that begins with a word; others are passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            first, _, rest = line.partition(" ")
            if first == "ended":
                self._running = None
            if first == word:
                return rest.strip()
        raise AssertionError(f"the nursery ended; nobody said {word}")

    def stop(self) -> None:
        """End what still runs, as after a test that failed."""
        if self._running is not None:
            os.kill(self._running, signal.SIGKILL)

    def run(self, *words: str, dies_at: int = 0) -> int:
        """Run a command to its end, or to its death, and give its exit code; a signal's is negative."""
        self.start(*words, dies_at=dies_at)
        return int(self.wait_for("ended"))


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-c", NURSERY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        made = Nursery(process)
        yield made
        made.stop()


def last_month_but_one() -> Month:
    """A month that may be closed, whenever the test runs."""
    now_ms = time.time_ns() // 1_000_000
    return month_of(now_ms - 45 * DAY_MS, "UTC")


def batches_of_facts() -> list[list[Fact]]:
    """Some hours of two cards, hour by hour: confirmations that grow, and use in three revisions an hour."""
    from_ms = month_bounds_ms(last_month_but_one(), "UTC")[0] + 9 * DAY_MS
    batches: list[list[Fact]] = []
    for step in range(1, HOURS + 1):
        hour_ms = from_ms + (step - 1) * HOUR_MS
        now_ms = hour_ms + HOUR_MS
        facts: list[Fact] = []
        for card in range(CARDS):
            place: dict[str, Any] = {
                "cluster": "a", "node_uid": f"uid-{card % 2}", "device_uuid": f"GPU-{card}",
            }  # fmt: skip
            facts.append(
                PresenceFact(
                    **place, node=f"node-{card % 2}", witness="node", from_ms=from_ms, to_ms=now_ms,
                    state="healthy", model="NVIDIA L4", vendor="NVIDIA", registered_mib=24_576, slots=10,
                )
            )  # fmt: skip
            for number in range(SLICES):
                slice_of: dict[str, Any] = place | {"pod_uid": f"pod-{card}-{number}", "container": "main"}
                ends = step == HOURS
                facts.append(
                    AllocationFact(
                        **slice_of, witness="node", node=f"node-{card % 2}", namespace="team", pod="train",
                        vendor="NVIDIA", model="NVIDIA L4", mem_mib=6_000, core_percent=20,
                        container_kind="app", tenant_key=f"tenant-{number}",  # type: ignore[arg-type]
                        bound_at_ms=from_ms + number, first_confirmed_at_ms=from_ms + number,
                        confirmed_at_ms=now_ms,
                        ended_at_ms=now_ms if ends else None, end_kind="observed" if ends else None,
                    )
                )  # fmt: skip
                facts += [
                    SliceUsageFact(
                        **slice_of, hour_ms=hour_ms, epoch="e", revision=revision, from_ms=hour_ms,  # type: ignore[arg-type]
                        to_ms=hour_ms + revision * 1_000, covered_ms=revision * 900, unknown_ms=0,
                        sm_ppm_ms=revision * step, sm_down_ppm_ms=0, mem_used_mib_ms=0, mem_peak_mib=1,
                        energy_active_mj=0, blocked_ms=0, over_limit_ms=0, source="nvml",
                    )
                    for revision in (1, 2, 3)
                ]  # fmt: skip
        batches += [facts[0::2], facts[1::2]]
    return batches


def open_accounts(database: Database) -> str:
    """An account, a platform, a cluster and a price; gives the token of a reporter."""
    by: dict[str, Any] = {"by": COMMAND_LINE, "now_ms": 0}
    with database.writing() as session:
        for code, kind in (("acme", "tenant"), ("platform", "platform")):
            add_account(session, code, kind=kind, currency="EUR", time_zone="UTC", grace_days=3, **by)  # type: ignore[arg-type]
        add_cluster(session, "a", account="acme", platform_account="platform", **by)
        set_price(
            session,
            sku="gpu-slice",
            model="",
            currency="EUR",
            unit_price=Decimal("2.40"),
            valid_from_ms=0,
            **by,
        )
        return create_token(session, role="reporter", cluster="a", **by)


def body_of(facts: Sequence[Fact]) -> bytes:
    return b"\n".join(map(canonical_bytes, facts)) + b"\nno fact"


def ingest_all(database: Database) -> None:
    """The same batches in order, undisturbed."""
    now_ms = time.time_ns() // 1_000_000
    for facts in batches_of_facts():
        lines = read_lines(body_of(facts), Scope("a"), now_ms=now_ms)
        with database.writing(cluster="a") as session:
            ingest(session, lines, cluster="a", now_ms=now_ms)


def stored_facts(database: Database) -> dict[str, list[Any]]:
    """All that an ingest writes, but when, and in which request."""
    with database.reading() as session:
        held = {
            kind.table.name: sorted(
                tuple(row)
                for row in session.execute(select(*(kind.table.columns[name] for name in kind.columns)))
            )
            for kind in KINDS
            if kind in KINDS[:2] or kind.fact_type is SliceUsageFact
        }
        nodes = sorted(tuple(row) for row in session.execute(select(Node.node_uid, Node.name)))
        refused = sorted(tuple(row) for row in session.execute(select(Quarantine.reason, Quarantine.fact)))
        numbers = list(session.scalars(select(IngestCounter.last_seq)))
        return held | {"node": nodes, "quarantine": refused, "number": numbers}


def ledger(database: Database) -> dict[str, list[Any]]:
    """All that rating writes, but ids."""
    line = [c for c in LedgerLine.__table__.columns if not c.name.endswith("id") or c.name == "node_uid"]
    with database.reading() as session:
        joined = select(Tenant.path, *line).join(Tenant, Tenant.id == LedgerLine.tenant_id)
        return {
            "lines": sorted(map(repr, session.execute(joined))),
            "hours": sorted(map(repr, session.execute(select(*DeviceHour.__table__.columns)))),
        }


class Pusher:
    """An exporter's manner of sending: one batch after the other, each until it is acknowledged."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self.acknowledged = 0
        self.failures = 0
        self.moved = threading.Condition()

    def push(self, batches: Sequence[bytes]) -> None:
        for body in batches:
            while not self._is_taken(body):
                with self.moved:
                    self.failures += 1
                    self.moved.wait(0.01)
            with self.moved:
                self.acknowledged += 1
                self.moved.notify_all()

    def _is_taken(self, body: bytes) -> bool:
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": CONTENT_TYPE, "Content-Encoding": "gzip",
            HEADER_SENT_AT: str(time.time_ns() // 1_000_000), HEADER_KUBE_SYSTEM_UID: "uid",
            HEADER_SOURCE: "role=cluster;epoch=e;version=0",
        }  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("POST", FACTS_PATH, gzip.compress(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if answer.status != http.client.OK:
            return False
        assert [one["reason"] for one in json.loads(text)["rejected"]] == ["malformed"]
        return True


@pytest.mark.slow
def test_a_server_killed_many_times_while_facts_come_in_stores_each_of_them_once(
    new_books: NewBooks, nursery: Nursery
) -> None:
    batches = batches_of_facts()
    chance = random.Random(20_261_001)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    with new_books() as expected, new_books() as database:
        open_accounts(expected)
        ingest_all(expected)
        token = open_accounts(database)
        url = database.engine.url.render_as_string(hide_password=False)
        database.close()
        serve = (
            "serve", "--database", url, "--listen", f"127.0.0.1:{port}", "--rate-interval", "0.05",
        )  # fmt: skip
        pusher = Pusher(port, token)
        pushing = threading.Thread(target=pusher.push, args=([body_of(facts) for facts in batches],))
        pushing.start()
        for number in range(KILLS):
            pid = nursery.start(*serve)
            nursery.wait_for("listening")
            with pusher.moved:
                due = (number + 1) * (len(batches) - 4) // KILLS
                pusher.moved.wait_for(lambda due=due: pusher.acknowledged >= due)  # type: ignore[misc]
            # Somewhere in the midst of a request, or of a rating.
            threading.Event().wait(chance.uniform(0, 0.05))
            os.kill(pid, signal.SIGKILL)
            assert nursery.wait_for("ended") == "-9"
        pid = nursery.start(*serve)
        pushing.join()
        os.kill(pid, signal.SIGTERM)
        assert nursery.wait_for("ended") == "0"
        assert pusher.failures > 0
        assert stored_facts(database) == stored_facts(expected)
        with database.reading() as session:
            source = session.get_one(ExporterSource, ("a", "e"))
            # The second revision of each hour comes after the third.
            assert source.facts_stored == HOURS * CARDS * (1 + SLICES + SLICES * 2)
        now_ms = time.time_ns() // 1_000_000
        for books in (expected, database):
            rate(books, as_of_ms=now_ms, grace_ms=GRACE_MS)
        assert ledger(database) == ledger(expected)


@pytest.mark.slow
def test_rate_and_close_killed_at_many_statements_end_in_one_ledger_and_one_statement(
    new_books: NewBooks, nursery: Nursery
) -> None:
    month = last_month_but_one()
    with new_books() as expected, new_books() as database:
        killed = {"rate": 0, "close": 0}
        for books in (expected, database):
            open_accounts(books)
            ingest_all(books)
            url = books.engine.url.render_as_string(hide_password=False)
            books.close()
            for command, words in (("rate", ("rate",)), ("close", ("close", str(month)))):
                dies_at = 5
                while books is database and nursery.run(*words, "--database", url, dies_at=dies_at) == -9:
                    killed[command] += 1
                    dies_at += 11
                assert nursery.run(*words, "--database", url) == 0
        assert killed["rate"] >= 5
        assert killed["close"] >= 5
        assert ledger(database) == ledger(expected)
        statements = []
        for books in (expected, database):
            with books.reading() as session:
                issued = list_issued(session, accounts=["acme", "platform"])
                closes = select(func.count()).where(AuditLog.action == "period close")
                states = session.scalars(select(BillingPeriod.state).order_by(BillingPeriod.starts_at_ms))
                statements.append(
                    [
                        sorted((one.account, one.total) for one in issued),
                        session.scalar(closes),
                        sorted(states),
                    ]
                )
        assert statements[0] == statements[1]
        assert statements[0][1] == 2
