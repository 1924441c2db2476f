"""`verify` on closed months: what was tampered with, and what merely came late (`ledger.md §9`)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from accounting.errors import ConflictError
from contract.facts import AllocationFact, SliceUsageFact
from tests.accounting.postgresql import as_owner

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Usage = Callable[..., SliceUsageFact]

HOUR = 3_600_000
DAY = 24 * HOUR
GUARDED = ("ledger_line", "statement", "sealed_use", "billing_period")


@pytest.fixture
def closed(october: Ledger, at: At, slice_usage: Usage) -> Ledger:
    hour = at("09:00", 5)
    used = slice_usage(hour_ms=hour, from_ms=hour, to_ms=hour + HOUR, covered_ms=HOUR)
    october.send([used], now_ms=at("12:00", 5))
    for account in ("acme", "platform"):
        october.close(account, now_ms=at("23:00", 31) + 4 * DAY)
    return october


def tamper(ledger: Ledger, statement: str, **values: object) -> None:
    """Change rows as somebody with all rights on the database could."""
    with as_owner(ledger.database) as database, database.writing() as session:
        if ledger.database.is_postgresql:
            for table in GUARDED:
                session.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        else:
            names = session.scalars(
                text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name NOT LIKE 'audit%'")
            ).all()
            for name in names:
                session.execute(text(f"DROP TRIGGER {name}"))
        assert session.execute(text(statement), values).rowcount > 0  # type: ignore[attr-defined]


def test_a_closed_month_holds_as_it_was_sealed(closed: Ledger) -> None:
    verified = closed.verify()
    assert (verified.findings, verified.late, verified.pending) == ([], [], [])
    assert (verified.statements, verified.lines) == (2, 2)


@pytest.mark.parametrize(
    ("statement", "checks"),
    [
        (
            "UPDATE ledger_line SET amount = '4.51' WHERE kind = 'usage'",
            {"seal", "statement_adds_up", "line_recomputed", "rollup"},
        ),
        (
            "UPDATE ledger_line SET quantity = quantity - 1 WHERE kind = 'idle'",
            {"seal", "line_recomputed", "rollup"},
        ),
        ("UPDATE ledger_line SET pod = 'other' WHERE kind = 'usage'", {"seal"}),
        ("UPDATE ledger_line SET held_not_running_quantity = 7 WHERE kind = 'usage'", {"seal", "rollup"}),
        (
            "DELETE FROM ledger_line WHERE kind = 'usage'",
            {"seal", "statement_adds_up", "line_recomputed", "rollup"},
        ),
        ("UPDATE statement SET total = '4.51' WHERE account = 'acme'", {"statement_document"}),
        ("UPDATE statement SET number = 9 WHERE account = 'acme'", {"statement_numbers"}),
        ("DELETE FROM statement WHERE account = 'platform'", {"seal", "statement_numbers"}),
        ("UPDATE statement_number SET last_number = 3", {"statement_numbers"}),
        ("DELETE FROM sealed_use", {"seal"}),
        ("UPDATE billing_period SET as_of_ms = as_of_ms + 1 WHERE account = 'acme'", {"seal"}),
    ],
)
def test_verify_finds_one_changed_cent_a_deleted_line_and_a_changed_statement(
    closed: Ledger, statement: str, checks: set[str]
) -> None:
    tamper(closed, statement)
    verified = closed.verify()
    assert {finding.check for finding in verified.findings} == checks
    assert not verified.late


def test_verify_finds_one_flipped_digit_or_letter_in_any_column_of_a_sealed_line(closed: Ledger) -> None:
    numbers = (
        "own_quantity", "quantity", "held_not_running_quantity", "degraded_quantity", "day_ms",
        "charge_from_ms", "charge_to_ms", "revision",
    )  # fmt: skip
    words = (
        "sku", "resource_key", "cluster", "node_uid", "node", "device_uuid", "model", "namespace", "pod",
        "container", "unit",
    )  # fmt: skip
    forged = {name: f"{name} + 1" for name in numbers} | {name: f"{name} || 'x'" for name in words}
    # 4.50 and 3.00 EUR, changed in the last of the 17 digits that are kept.
    forged |= {"amount": "'4.50000000000000001'", "unit_price": "'3.00000000000000001'"}
    forged |= {"currency": "'USD'", "reason": "'none'", "discount_percent": "'0'", "price_version_id": "NULL"}
    with closed.database.reading() as session:
        row = session.execute(text("SELECT * FROM ledger_line WHERE kind = 'usage'")).one()._mapping
    assert set(row) - set(forged) == {
        # What makes it another's line, and what no line of this kind has.
        "id", "account", "period_id", "tenant_id", "kind", "policy_version_id", "discount_version_id",
        "corrects_period_id", "corrects_kind", "corrects_day_ms",
    }  # fmt: skip
    for name, value in forged.items():
        tamper(closed, f"UPDATE ledger_line SET {name} = {value} WHERE kind = 'usage'")
        assert "seal" in {finding.check for finding in closed.verify().findings}, name
        tamper(closed, f"UPDATE ledger_line SET {name} = :before WHERE kind = 'usage'", before=row[name])
    assert closed.verify().holds


def test_verify_finds_a_statement_whose_document_was_changed_with_its_hash(closed: Ledger) -> None:
    with closed.database.reading() as session:
        document = session.scalars(text("SELECT document FROM statement WHERE account = 'acme'")).one()
    forged = zlib.compress(zlib.decompress(document).replace(b'"total":"4.50"', b'"total":"4.40"'))
    assert forged != document
    tamper(closed, "UPDATE statement SET document = :forged WHERE account = 'acme'", forged=forged)
    assert {finding.check for finding in closed.verify().findings} == {
        "seal",
        "statement_document",
        "statement_adds_up",
    }


def test_what_was_tampered_with_is_not_corrected(closed: Ledger, at: At) -> None:
    tamper(closed, "UPDATE ledger_line SET amount = '4.51' WHERE kind = 'usage'")
    with pytest.raises(ConflictError, match="not corrected but restored from a backup"):
        closed.correct("acme", now_ms=at("12:00", 20))


def test_a_late_fact_on_one_card_hides_no_difference_on_another_day(
    closed: Ledger, at: At, allocation: Allocation
) -> None:
    # The late slice was there on the 20th; the line of the 5th that is gone stays a failure.
    late = allocation(
        pod_uid="late",
        bound_at_ms=at("10:00", 20),
        confirmed_at_ms=at("12:00", 20),
        ended_at_ms=at("12:00", 20),
        end_kind="observed",
    )
    closed.send([late], now_ms=at("23:00", 31) + 5 * DAY)
    tamper(closed, "DELETE FROM ledger_line WHERE kind = 'usage'")
    verified = closed.verify()
    assert [finding.subject for finding in verified.findings if finding.check == "line_recomputed"] == [
        "usage of acme/team on c/node-uid-1/GPU-1 2026-10-04T22:00:00Z in acme 2026-10"
    ]
