"""A close that is killed at any statement: it is finished by running it again, once, with nothing lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from accounting.periods.issuing import list_issued, number_text
from accounting.store.models import AuditLog, BillingPeriod

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
DAY = 86_400_000

RUN = """
import os, signal, sys
from sqlalchemy import event
from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.calendar import parse_month
from accounting.periods.close import close_period
from accounting.store.database import Database

url, now_ms, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def close(dies_at):
    count = 0
    database = Database(url)

    def die(*_):
        nonlocal count
        count += 1
        if count == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(database.engine, "before_cursor_execute", die)
    event.listen(database.engine, "commit", die)
    for account in ("acme", "platform"):
        month = parse_month("2026-10")
        close_period(database, account, month, by=COMMAND_LINE, now_ms=now_ms, grace_ms=900_000)
    database.close()


dies_at, killed = 1, 0
while True:
    child = os.fork()
    if child == 0:
        close(dies_at)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        assert os.WEXITSTATUS(status) == 0
        break
    killed += 1
    dies_at += step
print(killed)
"""


def test_a_close_killed_at_many_points_ends_in_one_statement_with_nothing_lost_or_doubled(
    october: Ledger, at: At
) -> None:
    url = october.database.engine.url.render_as_string(hide_password=False)
    now_ms = at("23:00", 31) + 4 * DAY
    october.database.close()
    done = subprocess.run(
        [sys.executable, "-c", RUN, url, str(now_ms), "9"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5
    with october.database.reading() as session:
        issued = list_issued(session, accounts=["acme", "platform"])
        assert [(number_text(one), one.account, one.total) for one in issued] == [
            ("SM-000001", "acme", Decimal("4.50")),
            ("SM-000002", "platform", Decimal("4.50")),
        ]
        states = session.scalars(select(BillingPeriod.state).order_by(BillingPeriod.starts_at_ms)).all()
        assert sorted(states) == ["closed", "closed", "open", "open"]
        closes = select(func.count()).where(AuditLog.action == "period close")
        assert session.scalar(closes) == 2
    verified = october.verify()
    assert (verified.findings, verified.late, verified.lines) == ([], [], 2)
