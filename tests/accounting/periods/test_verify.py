"""`verify` finds what was changed, and nothing else (`reference/ledger.md §9`)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from contract.facts import AllocationFact, PresenceFact

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]


@pytest.fixture
def rated(ledger: Ledger, at: At, allocation: Allocation, presence: Presence) -> Ledger:
    now = at("12:00")
    ledger.price("3.00")
    held = allocation(core_percent=50, bound_at_ms=at("09:00"), confirmed_at_ms=now)
    ledger.send([presence(at("09:00"), now), held], now_ms=now)
    ledger.rate(now)
    return ledger


def change(ledger: Ledger, statement: str) -> None:
    with ledger.database.writing() as session:
        session.execute(text(statement))


def test_what_was_rated_holds(rated: Ledger) -> None:
    verified = rated.verify()
    assert verified.holds
    assert (verified.device_hours, verified.lines, verified.statements) == (3, 2, 2)
    assert not verified.pending


@pytest.mark.parametrize(
    ("statement", "checks"),
    [
        ("UPDATE ledger_line SET amount = '4.51' WHERE kind = 'usage'", {"line_amount", "line_recomputed"}),
        (
            "UPDATE ledger_line SET quantity = quantity - 1 WHERE kind = 'idle'",
            {"line_amount", "line_recomputed"},
        ),
        ("UPDATE ledger_line SET own_quantity = own_quantity + 1 WHERE kind = 'usage'", {"line_recomputed"}),
        ("DELETE FROM ledger_line WHERE kind = 'usage'", {"line_recomputed"}),
        ("DELETE FROM ledger_line", {"line_recomputed"}),
        ("UPDATE ledger_line SET cluster = 'nowhere' WHERE kind = 'usage'", {"line_recomputed"}),
        (
            "UPDATE device_hour SET idle_ppm_ms = idle_ppm_ms + 1, charged_ppm_ms = charged_ppm_ms - 1",
            {"hour_recomputed"},
        ),
        ("DELETE FROM device_hour", {"hour_recomputed"}),
    ],
)
def test_a_changed_row_is_found_and_named(rated: Ledger, statement: str, checks: set[str]) -> None:
    change(rated, statement)
    verified = rated.verify()
    assert {finding.check for finding in verified.findings} == checks
    assert all("GPU-1" in f.subject or "line" in f.subject for f in verified.findings)


def test_the_database_refuses_an_hour_that_does_not_close(rated: Ledger) -> None:
    with pytest.raises(Exception, match="ck_device_hour_closes"):
        change(rated, "UPDATE device_hour SET idle_ppm_ms = idle_ppm_ms + 1")


def test_facts_that_came_after_the_rating_are_pending_not_a_failure(
    rated: Ledger, at: At, allocation: Allocation
) -> None:
    rated.send(
        [allocation(pod_uid="late", bound_at_ms=at("09:00"), confirmed_at_ms=at("12:00"))], now_ms=at("12:00")
    )
    verified = rated.verify()
    assert verified.holds
    assert "c/node-uid-1/GPU-1 2026-10-01T00:00:00Z" in verified.pending
    rated.rate(at("12:00"))
    assert not rated.verify().pending
    assert rated.verify().holds


def test_a_price_that_was_set_after_the_rating_is_pending_until_rated(rated: Ledger, at: At) -> None:
    rated.price("4.00", reason="mistyped")
    assert rated.verify().holds
    assert rated.verify().pending
    rated.rate(at("12:00"))
    assert rated.verify().holds
    # 3 h of half a card at 4.00.
    assert rated.statement("team").total == Decimal("6.00")


def test_time_that_passed_since_the_rating_is_no_difference(rated: Ledger) -> None:
    # The open hold would be longer now; the ledger is checked as of the instant it was rated for.
    assert rated.verify().holds


def test_books_that_were_never_rated_hold(ledger: Ledger) -> None:
    assert ledger.verify().holds
