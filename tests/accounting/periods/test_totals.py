"""Sums, checks and hashes that PostgreSQL makes where the lines lie are those that Python makes."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy import select, text

from accounting.periods.hashing import hash_lines
from accounting.periods.totals import Totals, totals_by_tenant, wrong_amounts
from accounting.store.models import BillingPeriod, LedgerLine

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

COLUMNS = [column.name for column in LedgerLine.__table__.columns if column.name != "id"]


def period_of(ledger: Ledger) -> int:
    with ledger.database.reading() as session:
        return session.scalars(select(BillingPeriod.id).where(BillingPeriod.account == "acme")).one()


def add_lines(ledger: Ledger, amounts: list[str], reason: str = "because") -> None:
    """Adjustments, which may have any amount."""
    given = {"amount": ":amount", "kind": "'adjustment'", "revision": ":number", "reason": ":reason"}
    values = ", ".join(given.get(name, name) for name in COLUMNS)
    statement = text(
        f"INSERT INTO ledger_line ({', '.join(COLUMNS)}) SELECT {values} FROM ledger_line "
        "WHERE account = 'acme' AND kind = 'usage'"
    )
    with ledger.database.writing() as session:
        is_text = session.get_bind().dialect.name == "sqlite"
        for number, amount in enumerate(amounts, start=1):
            exact = Decimal(amount)
            given_amount = f"{exact:f}" if is_text else exact
            session.execute(statement, {"amount": given_amount, "number": number, "reason": reason})


def test_sums_are_exact_and_a_half_goes_to_the_even_cent(october: Ledger) -> None:
    # Half even: 0.00, 0.02, 0.00, -0.02, 2.68, 2.66 and 0.13; a line of 0.5 × 3 h × 3.00 is there already.
    halves = ["0.005", "0.015", "-0.005", "-0.015", "2.675", "2.665", "0.12999999999999999"]
    add_lines(october, halves)
    with october.database.reading() as session:
        found = totals_by_tenant(session, period_of(october), "EUR")
        unpriced = totals_by_tenant(session, period_of(october), None)
    half_of_three_hours = 3 * 3_600_000_000_000 // 2
    assert list(found.values()) == [
        Totals(
            8,
            half_of_three_hours,
            half_of_three_hours,
            0,
            Decimal("4.5") + Decimal("5.46999999999999999"),
            Decimal("4.50") + Decimal("5.47"),
        )
    ]
    assert [(one.lines, one.amount, one.shown) for one in unpriced.values()] == [(8, Decimal(0), Decimal(0))]


def test_an_amount_that_is_off_by_its_last_digit_is_found(october: Ledger) -> None:
    of_period = LedgerLine.period_id == period_of(october)
    with october.database.reading() as session:
        assert list(wrong_amounts(session, of_period)) == []
    with october.database.writing() as session:
        line = session.scalars(select(LedgerLine).where(of_period)).one()
        assert line.amount is not None
        line.amount += Decimal("1e-17")
        line_id = line.id
    with october.database.reading() as session:
        assert list(wrong_amounts(session, of_period)) == [line_id]


def test_a_line_is_hashed_as_the_text_that_copy_makes_of_it(october: Ledger) -> None:
    add_lines(october, ["-1.50"], reason="back\\slash, tab\tand Ümlaut")
    names = ["account", "amount", "corrects_kind", "kind", "quantity", "reason", "revision"]
    with october.database.reading() as session:
        period = session.get_one(BillingPeriod, period_of(october))
        found = hash_lines(session, period, ",".join(names))
    written = (
        "acme\t4.5\t\\N\tusage\t5400000000000\t\\N\t0\n"
        "acme\t-1.5\t\\N\tadjustment\t5400000000000\tback\\\\slash, tab\\tand Ümlaut\t1\n"
    )
    assert found == hashlib.sha256(written.encode()).hexdigest()
