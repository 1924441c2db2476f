"""Prices are superseded, never edited (`reference/ledger.md §4`)."""

from __future__ import annotations

from decimal import Decimal

import pytest
from sqlalchemy import select

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import ConflictError, InvalidError
from accounting.prices.book import list_versions, live_prices, parse_currency, parse_unit_price, set_price
from accounting.store.database import Database
from accounting.store.models import AuditLog, PriceVersion


def put(
    database: Database,
    unit_price: str,
    from_ms: int,
    to_ms: int | None = None,
    *,
    reason: str | None = None,
    now_ms: int = 5,
) -> int:
    with database.writing() as session:
        return set_price(
            session,
            sku="gpu-slice",
            model="Tesla T4",
            currency="EUR",
            unit_price=Decimal(unit_price),
            valid_from_ms=from_ms,
            valid_to_ms=to_ms,
            reason=reason,
            by=COMMAND_LINE,
            now_ms=now_ms,
        ).id


def versions(database: Database) -> list[PriceVersion]:
    with database.reading() as session:
        rows = list(list_versions(session))
        session.expunge_all()
        return rows


def test_mistyped_price_is_superseded_with_a_reason_and_stays_readable(database: Database) -> None:
    first = put(database, "40.00", 10)
    with pytest.raises(InvalidError, match="--reason"):
        put(database, "4.00", 10)
    second = put(database, "4.00", 10, reason="a zero too many", now_ms=9)
    old, new = versions(database)
    assert (old.id, old.unit_price, old.superseded_at_ms) == (first, Decimal("40.00"), 9)
    assert (new.id, new.supersedes_id, new.reason) == (second, first, "a zero too many")
    with database.reading() as session:
        assert [price.unit_price for price in live_prices(session)] == [Decimal("4.00")]
        assert len(session.scalars(select(AuditLog)).all()) == 2


def test_price_that_begins_within_an_open_ended_one_ends_it_there(database: Database) -> None:
    put(database, "2.40", 10)
    put(database, "3.00", 50)
    with database.reading() as session:
        live = [(p.unit_price, p.valid_from_ms, p.valid_to_ms) for p in live_prices(session)]
    assert sorted(live, key=lambda one: one[1]) == [(Decimal("2.40"), 10, 50), (Decimal("3.00"), 50, None)]
    assert len(versions(database)) == 3


@pytest.mark.parametrize(("from_ms", "to_ms"), [(5, 15), (12, 18), (5, None), (15, None)])
def test_validity_that_overlaps_another_is_refused(
    database: Database, from_ms: int, to_ms: int | None
) -> None:
    put(database, "2.40", 10, 20)
    with pytest.raises(ConflictError, match="must not overlap"):
        put(database, "3.00", from_ms, to_ms, reason="because")


def test_validities_that_touch_are_two_prices(database: Database) -> None:
    put(database, "2.40", 10, 20)
    put(database, "3.00", 20, 30)
    put(database, "1.00", 5, 10)
    with database.reading() as session:
        assert len(live_prices(session)) == 3


def test_validity_that_ends_before_it_begins_is_refused(database: Database) -> None:
    with pytest.raises(InvalidError, match="cannot end"):
        put(database, "1", 10, 10)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "-0", "1_0", "٣", "NaN", "Infinity", "1e10", "0.00000000000000001", "1,50"]
)
def test_price_that_cannot_be_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidError, match=f'price "{text}"'):
        parse_unit_price(text)


def test_price_keeps_every_digit() -> None:
    assert parse_unit_price("2.4000000000000001") == Decimal("2.4000000000000001")
    assert parse_unit_price("0") == 0


def test_currency_is_three_letters() -> None:
    assert parse_currency("eur") == "EUR"
    for text in ("", "EURO", "E1R", "ÄÖÜ"):
        with pytest.raises(InvalidError, match="currency"):
            parse_currency(text)


@pytest.mark.parametrize(
    ("model", "reason"),
    [("T4\x00", "x"), ("T4\nx", "x"), ("\x1b[2J", "x"), ("x" * 254, "x"), ("T4", "a\x00"), ("T4", "a\nb")],
)
def test_text_that_no_database_or_terminal_should_hold_is_refused(
    database: Database, model: str, reason: str
) -> None:
    with database.writing() as session, pytest.raises(InvalidError, match="printable"):
        set_price(
            session, sku="gpu-slice", model=model, currency="EUR", unit_price=Decimal(1), valid_from_ms=10,
            valid_to_ms=None, reason=reason, by=COMMAND_LINE, now_ms=5,
        )  # fmt: skip
    assert versions(database) == []
