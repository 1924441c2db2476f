"""Which month a budget stands in, and how its amount is written."""

from __future__ import annotations

from decimal import Decimal

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.budgets.book import Wish, parse_budget, set_budget
from accounting.budgets.standing import OpenAt, standings
from accounting.errors import InvalidError
from accounting.ledger.calendar import Month, month_bounds_ms, parse_instant
from accounting.prices.versioning import Recording
from accounting.store.database import Database
from accounting.store.models import BillingPeriod
from accounting.tenants.registry import add_account
from accounting.tenants.tree import add_tenant

OCTOBER, NOVEMBER = Month(2026, 10), Month(2026, 11)
ZONES = {"east": "Pacific/Kiritimati", "west": "Pacific/Pago_Pago"}


@pytest.fixture
def in_two_zones(database: Database) -> Database:
    """Two accounts a day apart, each with a budget and with periods for October and November."""
    with database.writing() as session:
        for code, zone in ZONES.items():
            add_account(
                session, code, kind="tenant", currency="EUR", time_zone=zone, grace_days=3,
                by=COMMAND_LINE, now_ms=0,
            )  # fmt: skip
            tenant = add_tenant(session, code, kind="organisation", by=COMMAND_LINE, now_ms=0)
            set_budget(session, tenant, Wish(Decimal(100), OCTOBER), Recording(COMMAND_LINE, 0, None))
            for month in (OCTOBER, NOVEMBER):
                starts_at_ms, ends_at_ms = month_bounds_ms(month, zone)
                session.add(
                    BillingPeriod(
                        account=code, starts_at_ms=starts_at_ms, ends_at_ms=ends_at_ms, state="open"
                    )
                )
    return database


def test_the_open_month_of_each_account_is_one_although_another_zone_is_in_the_next(
    in_two_zones: Database,
) -> None:
    # At noon in London it is 02:00 of 1 November in Kiritimati (UTC+14), 01:00 of 31 October in Pago Pago.
    noon_ms = parse_instant("2026-10-31T12:00:00Z")
    with in_two_zones.reading() as session:
        found = [(one.account, one.period) for one in standings(session, COMMAND_LINE, OpenAt(noon_ms))]
    assert found == [("east", "2026-11"), ("west", "2026-10")]


def test_a_month_that_is_named_is_the_same_in_every_account(in_two_zones: Database) -> None:
    with in_two_zones.reading() as session:
        found = [(one.account, one.period) for one in standings(session, COMMAND_LINE, OCTOBER)]
    assert found == [("east", "2026-10"), ("west", "2026-10")]


@pytest.mark.parametrize("text", ["", "-1", "-0", "1_000", "1E3", "NaN", "Infinity", " 5", "٥", "9" * 16])
def test_an_amount_that_is_not_written_plainly_or_is_absurd_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="budget"):
        parse_budget(text)
