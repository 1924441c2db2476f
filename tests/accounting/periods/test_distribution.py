"""Idle capacity of a month handed on, provisional and posted; worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.ledger.calendar import parse_month
from accounting.periods.distribution import post_distribution
from accounting.prices.policies import set_policy
from accounting.reports.rendering import render_statement
from contract.facts import AllocationFact, Fact, PresenceFact

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

CARD_HOUR = 3_600_000_000_000

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]


def idle_policy(ledger: Ledger, value: str, from_ms: int = 0) -> None:
    with ledger.database.writing() as session:
        set_policy(session, kind="idle", value=value, valid_from_ms=from_ms, by=COMMAND_LINE, now_ms=0)


def ten_hours(
    ledger: Ledger,
    at: At,
    allocation: Allocation,
    presence: Presence,
    *,
    cluster: str = "c",
    held: bool = True,
    price: str | None = "2.00",
) -> None:
    """A card for 10 hours: x holds half for 3 h, y a quarter for 2 h; 8 card-hours stay idle, at 2.00."""
    if price is not None:
        ledger.price(price, model="")
    facts: list[Fact] = [presence(at("08:00"), at("18:00"), registered_mib=16_000, cluster=cluster)]
    for pod, mib, end in (("x", 8_000, "11:00"), ("y", 4_000, "10:00")) if held else ():
        facts.append(
            allocation(
                cluster=cluster, pod_uid=pod, mem_mib=mib, core_percent=0, tenant_key=pod,
                bound_at_ms=at("08:00"), ended_at_ms=at(end), end_kind="observed", confirmed_at_ms=at(end),
            )
        )  # fmt: skip
    ledger.send(facts, now_ms=at("20:00"))
    ledger.rate(at("20:00"))


def post(ledger: Ledger, account: str = "acme") -> int:
    with ledger.database.writing() as session:
        return post_distribution(session, account, parse_month("2026-10"))


def totals(ledger: Ledger) -> dict[str, Decimal | None]:
    return {path: ledger.statement(path).total for path in ("acme/x", "acme/y", "platform/idle")}


def test_idle_shares_of_an_open_month_are_provisional_and_in_no_sum(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ten_hours(ledger, at, allocation, presence)
    idle_policy(ledger, "by_allocation")
    # x held 1.5 card-hours, y 0.5: 6 and 2 of the 8 that stayed idle.
    statement = ledger.statement("acme/x")
    (share,) = statement.idle_shares
    assert (share.quantity_ppm_ms, share.amount, share.policy) == (
        6 * CARD_HOUR,
        Decimal("12.00"),
        "by_allocation",
    )
    assert (statement.total, statement.is_provisional) == (Decimal("3.00"), True)
    assert "provisional, in no sum: 6.0000 card-hours of Tesla T4 in c, 12 EUR" in render_statement(
        statement, "table"
    )
    idle_policy(ledger, "keep", at("00:00", 2))
    assert ledger.statement("acme/x").idle_shares == statement.idle_shares


def test_posting_changes_no_total_and_happens_once(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ten_hours(ledger, at, allocation, presence)
    idle_policy(ledger, "by_allocation")
    before = sum(total for total in totals(ledger).values() if total is not None)
    assert post(ledger) == 3
    assert totals(ledger) == {
        "acme/x": Decimal("15.00"),
        "acme/y": Decimal("5.00"),
        "platform/idle": Decimal("0.00"),
    }
    assert before == 20
    assert (post(ledger), post(ledger, "platform")) == (0, 0)
    statement = ledger.statement("acme/x")
    assert statement.idle_shares == []
    assert statement.sums.handed_on_ppm_ms == 6 * CARD_HOUR
    # The lines survive the next rating, and verify takes them for what they are.
    ledger.rate(at("21:00"))
    assert totals(ledger)["acme/y"] == Decimal("5.00")
    assert ledger.verify().findings == []


def test_even_shares_are_equal_among_those_that_held_anything(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ten_hours(ledger, at, allocation, presence)
    idle_policy(ledger, "even")
    post(ledger)
    # 8.00 each beside 3.00 and 1.00.
    assert totals(ledger) == {
        "acme/x": Decimal("11.00"),
        "acme/y": Decimal("9.00"),
        "platform/idle": Decimal("0.00"),
    }


def test_without_anyone_in_the_pool_idle_capacity_stays_and_its_line_says_so(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ten_hours(ledger, at, allocation, presence, held=False)
    idle_policy(ledger, "by_allocation")
    assert post(ledger) == 0
    statement = ledger.statement("platform/idle")
    assert statement.total == Decimal("20.00")
    assert [line.reason for line in statement.lines] == [
        "stays at platform/idle: no tenant held a part of the pool"
    ]


@pytest.mark.parametrize("other", [("USD", "Europe/Berlin"), ("EUR", "UTC")])
def test_distribution_reaches_only_accounts_of_the_same_currency_and_zone(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, other: tuple[str, str]
) -> None:
    ledger.account("other", currency=other[0], zone=other[1])
    ledger.cluster("o", "other")
    ten_hours(ledger, at, allocation, presence, cluster="o")
    idle_policy(ledger, "even")
    assert post(ledger, "other") == post(ledger, "platform") == 0
    (line,) = ledger.statement("platform/idle").lines
    assert line.reason == "stays at platform/idle: account other has another currency or time zone"


def test_a_policy_holds_for_the_whole_local_days_that_begin_under_it(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ten_hours(ledger, at, allocation, presence)
    # From within 1 October on: the day had begun before.
    idle_policy(ledger, "even", at("08:30"))
    assert post(ledger) == 0
    assert ledger.statement("acme/x").idle_shares == []


def test_idle_capacity_without_a_price_is_not_handed_on(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ten_hours(ledger, at, allocation, presence, price=None)
    idle_policy(ledger, "even")
    assert post(ledger) == 0
    (line,) = ledger.statement("platform/idle").lines
    assert line.reason == "stays at platform/idle: some of it has no price"


def test_the_close_hands_idle_capacity_on_for_good(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ten_hours(ledger, at, allocation, presence)
    idle_policy(ledger, "by_allocation")
    later = at("00:00", 31) + 6 * 24 * 3_600_000
    ledger.close("acme", now_ms=later)
    statement = ledger.statement("acme/x")
    assert (statement.total, statement.is_provisional, statement.idle_shares) == (Decimal("15.00"), False, ())
    assert [line.reason for line in statement.lines if line.kind == "distribution"] == [
        "idle capacity, by_allocation"
    ]
    ledger.close("platform", now_ms=later)
    assert ledger.statement("platform/idle").total == Decimal("0.00")
