"""Processes that rate the same books: two at once, and one that is killed on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from accounting.store.models import DeviceHour, LedgerLine, Tenant
from contract.facts import AllocationFact, PresenceFact

if TYPE_CHECKING:
    from accounting.store.database import Database
    from tests.accounting.periods.conftest import Ledger

CARD_HOUR = 3_600_000_000_000

RUN = """
import os, signal, sys
from sqlalchemy import event
from accounting.periods.rate import rate
from accounting.store.database import Database

url, as_of_ms, dies_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
database = Database(url)
count = 0


def die(*_):
    global count
    count += 1
    if count == dies_at:
        os.kill(os.getpid(), signal.SIGKILL)


event.listen(database.engine, "commit", die)
rate(database, as_of_ms=as_of_ms, grace_ms=900_000)
database.close()
"""


def start(ledger: Ledger, as_of_ms: int, dies_at: int = 0) -> subprocess.Popen[bytes]:
    url = ledger.database.engine.url.render_as_string(hide_password=False)
    return subprocess.Popen([sys.executable, "-c", RUN, url, str(as_of_ms), str(dies_at)], env=os.environ)


def books(database: Database) -> tuple[list[Any], list[Any]]:
    """Everything that rating wrote, but ids."""
    line = [c for c in LedgerLine.__table__.columns if c.name not in {"id", "tenant_id", "period_id"}]
    with database.reading() as session:
        joined = select(Tenant.path, *line).join(Tenant, Tenant.id == LedgerLine.tenant_id)
        lines = sorted(map(tuple, session.execute(joined)), key=repr)
        return lines, sorted(map(tuple, session.execute(select(*DeviceHour.__table__.columns))))


def test_two_processes_that_rate_at_once_and_one_that_is_killed_leave_the_ledger_of_one_rating(
    ledger: Ledger,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> None:
    # Four cards, half of each held for two days: 4 × 48 h × 0.5 = 96 card-hours charged, and as much idle.
    begins, ends, now = at("00:00", 5), at("00:00", 7), at("12:00", 8)
    ledger.price("3.00")
    for number in range(4):
        card = f"GPU-{number}"
        held = allocation(
            device_uuid=card, core_percent=50, bound_at_ms=begins, confirmed_at_ms=ends, ended_at_ms=ends,
            end_kind="observed",
        )  # fmt: skip
        ledger.send([presence(begins, ends, device_uuid=card), held], now_ms=now)
    # The first commit moves the books' instant; it dies on the way to the next, which is that of the cards.
    killed = start(ledger, now, dies_at=2)
    assert killed.wait(120) == -9
    assert ledger.verify().pending
    racing = [start(ledger, now) for _ in range(2)]
    assert [one.wait(120) for one in racing] == [0, 0]
    after = books(ledger.database)
    charged = sum(line.quantity for _, line in ledger.lines() if line.kind == "usage")
    idle = sum(line.quantity for _, line in ledger.lines() if line.kind == "idle")
    assert (charged, idle) == (96 * CARD_HOUR, 96 * CARD_HOUR)
    ledger.rate(now)
    assert books(ledger.database) == after
    verified = ledger.verify()
    assert verified.holds
    assert not verified.pending
